package spec

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/hardtack/packer-plugin-hardtack/pkg/machine"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// CAPath is where a machine has the cluster's public Kubernetes CA.
const CAPath = "/etc/hardtack/ca.crt"

// clusterVariable is the role file's word for the cluster's name.
const clusterVariable = "CLUSTER_NAME"

// File is one file of a machine's user data.
type File struct {
	Path    string
	Content []byte
	// Mode is octal text, "" for "0644"; Owner is "user:group", "" for root's.
	Mode, Owner string
}

// Group returns the group of that name.
func (c *Complete) Group(name string) (Group, error) {
	var names []string
	for _, g := range c.Groups {
		if g.Name == name {
			return g, nil
		}
		names = append(names, g.Name)
	}
	return Group{}, fmt.Errorf("group %q is not known: the groups are %s", name, strings.Join(names, ", "))
}

// Files lists the files of a group's machines in the order in which they are to be written, all but
// machine.yaml: drop-ins and configuration documents where they differ from the image's, what the operator
// adds, the CA, and the role files.
func (c *Complete) Files(group string, ca []byte) ([]File, error) {
	g, err := c.Group(group)
	if err != nil {
		return nil, err
	}
	var files []File
	for _, p := range c.parts {
		if !g.Roles.Has(p.program.role) {
			continue
		}
		f, ok, err := p.dropIn(g)
		if err != nil {
			return nil, err
		}
		if ok {
			files = append(files, f)
		}
		if p.document == nil {
			continue
		}
		value, differs := p.document.file()
		if p.field == "kubelet" && untainted(g) && value[taintsField] == nil {
			value, differs = maps.Clone(value), true
			value[taintsField] = []any{}
		}
		if !differs {
			continue
		}
		data, err := encodeDocument(p.document.path, value)
		if err != nil {
			return nil, fmt.Errorf("writing %s: %w", p.document.path, err)
		}
		files = append(files, File{Path: p.document.path, Content: data})
	}
	more, err := c.assets(g)
	if err != nil {
		return nil, err
	}
	files = append(files, more...)
	if len(ca) > 0 {
		files = append(files, File{Path: CAPath, Content: ca})
	}
	for _, r := range g.Roles {
		data, err := c.roleFile(g, r)
		if err != nil {
			return nil, err
		}
		files = append(files, File{Path: r.File(), Content: data})
	}
	for _, f := range files {
		if what := secret(f.Content); what != "" {
			return nil, fmt.Errorf("%s would hold %s, and user data is no place for a secret", f.Path, what)
		}
	}
	return files, nil
}

// taintsField is KubeletConfiguration's.
const taintsField = "registerWithTaints"

// untainted reports whether the group's machines are masters that take any pod. By itself the agent taints
// a node that is a master, but for what kubelet.yaml says.
func untainted(g Group) bool {
	return g.Roles.Has(role.Masters) && g.Roles.Has(role.Minions) && len(g.Node.Taints) == 0
}

// roleFile is the content of one role file: the cluster's name, and every variable that is not what the
// image has.
func (c *Complete) roleFile(g Group, r role.Role) ([]byte, error) {
	lines := map[string]string{clusterVariable: c.Cluster.Name}
	for _, p := range c.parts {
		if p.program.role != r {
			continue
		}
		more, err := p.lines(g)
		if err != nil {
			return nil, err
		}
		maps.Copy(lines, more)
	}
	var b bytes.Buffer
	for _, name := range slices.Sorted(maps.Keys(lines)) {
		fmt.Fprintf(&b, "%s=%s\n", name, quoteValue(lines[name]))
	}
	return b.Bytes(), nil
}

// lines are the variables of one component that are not what the image has.
func (p part) lines(g Group) (map[string]string, error) {
	lines := map[string]string{}
	var last []string
	for _, name := range slices.Sorted(maps.Keys(p.flags)) {
		fl := p.flags[name]
		words := fl.words(name, g.Member)
		switch p.carrier(fl, words, name) {
		case byImage, byDropIn:
		case byEtcd:
			lines[etcdVariable(name)] = strings.TrimPrefix(strings.Join(words, " "), "--"+name+"=")
		case byVariable:
			lines[fl.bare.variable] = words[0]
		case byArguments:
			last = append(last, words...)
		}
	}
	if len(last) == 0 {
		return lines, nil
	}
	if p.program.args == "" {
		return nil, fmt.Errorf("%s takes no further flags: its unit has no variable for them", p.field)
	}
	for i, w := range last {
		if !p.program.shell {
			last[i] = escapeWord(w)
		}
	}
	lines[p.program.args] = strings.Join(last, " ")
	return lines, nil
}

// Machine is what a machine of the group is told about its cluster, but for the hash.
func (c *Complete) Machine(g Group) machine.Config {
	s := c.Cluster
	m := machine.Config{
		APIVersion: machine.APIVersion, Kind: machine.Kind,
		Cluster: s.Name, Group: c.AutoScaling(g), Store: s.Store,
		API: machine.API{Port: s.API.Port, Names: s.API.Names},
		Network: machine.Network{
			ServiceCIDR: s.Network.ServiceCIDR, PodCIDR: s.Network.PodCIDR,
			DNSAddress: s.Network.DNSAddress, DNSDomain: s.Network.DNSDomain, MTU: s.Network.MTU,
		},
	}
	if g.Roles.Has(role.Masters) || g.Roles.Has(role.Etcd) {
		m.Etcd = machine.Etcd{Members: g.Members, Member: g.Member}
	}
	if s.LaunchHook != noHook {
		m.LaunchHook = s.LaunchHook
	}
	if g.Roles.Has(role.Minions) {
		m.Node = machine.Node{Labels: g.Node.Labels, Taints: g.Node.Taints, MaxPods: g.Node.MaxPods}
		if g.Node.Naming != "auto" {
			m.Node.Naming = g.Node.Naming
		}
	}
	return m
}
