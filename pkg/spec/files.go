package spec

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/hardtack/packer-plugin-hardtack/pkg/node/machine"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// The lines of a role file that are neither the cluster's name nor a unit's; pkg/node/config reads them.
const (
	storeVariable   = "STORE"
	memberVariable  = "ETCD_MEMBER"
	storageVariable = "ETCD_STORAGE"
	diskVariable    = "ETCD_DISK"

	backupVariable      = "ETCD_BACKUP"
	backupEveryVariable = "ETCD_BACKUP_EVERY"
)

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

// Files lists the files of a group's machines in the order in which they are written: machine.yaml, drop-ins and
// configuration documents if they differ from the image's, the operator's files, the CA if it is given, and the role
// files. A default group of a default cluster only has role files.
func (c *Complete) Files(group string, ca []byte) ([]File, error) {
	g, err := c.Group(group)
	if err != nil {
		return nil, err
	}
	files, err := c.machineFile(g)
	if err != nil {
		return nil, err
	}
	for _, p := range c.components {
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
		if p.name == "kubelet" && untainted(g) && value[taintsField] == nil {
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
	if g.Roles.Has(role.Masters) {
		admission, err := c.podSecurity()
		if err != nil {
			return nil, err
		}
		files = append(files, admission...)
	}
	if g.Node.PodsReachMetadata && g.Roles.Has(role.Minions) {
		files = append(files, File{Path: openMetadata, Content: []byte("# Pods reach the metadata service: groups[].node.podsReachMetadata.\n")})
	}
	files = append(files, c.clock()...)
	files = append(files, c.options(g)...)
	registries, err := c.registryFiles(g)
	if err != nil {
		return nil, err
	}
	files = append(files, registries...)
	more, err := c.assets(g)
	if err != nil {
		return nil, err
	}
	files = append(files, more...)
	if len(ca) > 0 {
		files = append(files, File{Path: machine.CAPath, Content: ca})
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

// openMetadata takes the place of the image's drop-in of the same name, which keeps pods from the metadata service.
const openMetadata = unitDir + "/kubepods.slice.d/10-hardtack.conf"

// taintsField is KubeletConfiguration's.
const taintsField = "registerWithTaints"

// untainted reports whether the group's machines are masters that take any pod. By itself the agent taints
// a node that is a master, but for what kubelet.yaml says.
func untainted(g Group) bool {
	return g.Roles.Has(role.Masters) && g.Roles.Has(role.Minions) && len(g.Node.Taints) == 0
}

// roleFile is the content of one role file: the cluster's name, what a machine cannot know by itself, and every variable
// that is not what the image has.
func (c *Complete) roleFile(g Group, r role.Role) ([]byte, error) {
	lines := map[string]string{role.ClusterVariable: c.Cluster.Name}
	if store := c.Cluster.Store; store != machine.DefaultStore(c.Cluster.Name) {
		lines[storeVariable] = store
	}
	if r == role.Etcd {
		maps.Copy(lines, c.etcdLines(g))
	}
	for _, p := range c.components {
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
func (p resolved) lines(g Group) (map[string]string, error) {
	lines := map[string]string{}
	var last []string
	for _, name := range slices.Sorted(maps.Keys(p.flags)) {
		fl := p.flags[name]
		words := fl.words(name, g.Member)
		switch p.carrier(fl, words, name) {
		case byImage, byDropIn, byAgent:
		case byEnvironment:
			lines[p.envVariable(name)] = strings.TrimPrefix(strings.Join(words, " "), "--"+name+"=")
		case byVariable:
			lines[fl.image.variable] = words[0]
		case byArguments:
			last = append(last, words...)
		}
	}
	if len(last) == 0 {
		return lines, nil
	}
	if p.program.args == "" {
		return nil, fmt.Errorf("%s takes no further flags: its unit has no variable for them", p.name)
	}
	for i, w := range last {
		if !p.program.shell {
			last[i] = escapeWord(w)
		}
	}
	lines[p.program.args] = strings.Join(last, " ")
	return lines, nil
}

// Info returns the facts that all members of the cluster must agree on.
func (c *Complete) Info() machine.ClusterInfo {
	m := machine.Config{Cluster: c.Cluster.Name, API: machine.API{Port: c.Cluster.API.Port}, Network: c.network()}
	if len(c.Groups) > 0 {
		m.Etcd.Members = c.Groups[0].Members
	}
	return m.Info()
}

func (c *Complete) network() machine.Network {
	n := c.Cluster.Network
	return machine.Network{ServiceCIDR: n.ServiceCIDR, PodCIDR: n.PodCIDR, DNSAddress: n.DNSAddress, DNSDomain: n.DNSDomain, MTU: n.MTU}
}

// machineFile is machine.yaml where it says anything: what differs from what the image, the role file and the instance say.
func (c *Complete) machineFile(g Group) ([]File, error) {
	m := c.Machine(g)
	m.Cluster, m.Group, m.Store, m.Etcd = "", "", "", machine.Etcd{}
	if m.API.Port == defaultPort {
		m.API.Port = 0
	}
	n := &m.Network
	if n.DNSAddress == machine.DNSOf(n.ServiceCIDR) {
		n.DNSAddress = ""
	}
	for _, f := range []struct {
		value *string
		usual string
	}{{&n.ServiceCIDR, defaultServiceCIDR}, {&n.PodCIDR, defaultPodCIDR}, {&n.DNSDomain, defaultDNSDomain}, {&m.LaunchHook, c.usualHook()}} {
		if *f.value == f.usual {
			*f.value = ""
		}
	}
	data, err := m.Marshal()
	if err != nil {
		return nil, fmt.Errorf("writing %s: %w", machine.Path, err)
	}
	if nothing, err := (machine.Config{APIVersion: m.APIVersion, Kind: m.Kind}).Marshal(); err != nil || bytes.Equal(data, nothing) {
		return nil, err
	}
	return []File{{Path: machine.Path, Content: data}}, nil
}

// usualHook is the hook that a machine completes by default.
func (c *Complete) usualHook() string {
	if inCloud(c.Cluster.Store) {
		return machine.DefaultLaunchHook
	}
	return machine.NoHook
}

// LaunchHook is the hook that the groups have for launches, "" for none.
func (c *Complete) LaunchHook() string {
	if c.Cluster.LaunchHook == machine.NoHook {
		return ""
	}
	return c.Cluster.LaunchHook
}

// Machine is the effective configuration of the group's machines, except for the hash of their user data.
func (c *Complete) Machine(g Group) machine.Config {
	s := c.Cluster
	m := machine.Config{
		APIVersion: machine.APIVersion, Kind: machine.Kind,
		Cluster: s.Name, Group: c.AutoScaling(g), Store: s.Store,
		API:     machine.API{Port: s.API.Port, Names: c.apiNames()},
		Network: c.network(), LaunchHook: s.LaunchHook,
	}
	if g.Roles.Has(role.Masters) || g.Roles.Has(role.Etcd) {
		m.Etcd = machine.Etcd{Members: g.Members, Member: g.Member}
	}
	if g.Roles.Has(role.Etcd) {
		m.Etcd.Storage, m.Etcd.Disk = c.Cluster.Etcd.Storage, c.Cluster.Etcd.Disks[g.Member]
		if m.Etcd.Backup = c.backupTo(); m.Etcd.Backup != "" && c.Cluster.Etcd.Backup.Every != machine.BackupMinutes {
			m.Etcd.BackupEvery = c.Cluster.Etcd.Backup.Every
		}
	}
	if g.Roles.Has(role.Masters) {
		m.Addons, m.AddonImages = s.Addons, s.AddonImages
	}
	if g.Roles.Has(role.Minions) {
		m.Node = machine.Node{Labels: g.Node.Labels, Taints: g.Node.Taints, MaxPods: g.Node.MaxPods}
		if g.Node.Naming != "auto" {
			m.Node.Naming = g.Node.Naming
		}
	}
	return m
}
