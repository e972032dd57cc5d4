package fleet

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/problem"
	"github.com/hardtack/packer-plugin-hardtack/pkg/base/problem/yamlfile"
	"github.com/hardtack/packer-plugin-hardtack/pkg/base/run"
	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/reconcile"
	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/record"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// The inventory of machines that no cloud keeps, in YAML or in JSON, which is YAML too:
//
//	cluster: demo
//	checks:                    # left out: every machine counts as well; see the type check
//	  masters: {ca: ca.crt}    # https://ADDRESS:443/readyz
//	  etcd: {}                 # a connection to port 2379; with ca, cert and key https://ADDRESS:2379/health
//	groups:
//	  - name: rack-1
//	    role: masters          # masters, minions, etcd, or several: masters+etcd
//	    desired: 3             # left out: as many as there are machines; 0 empties the record
//	    etcd_members: [a, b, c]
//	    machines:
//	      - id: m1             # its host name, for instance
//	        address: 10.0.0.1
//	        address6: fd00::1
//	        public: 203.0.113.7
//	        etcd_member: a
//	        out: true          # leave it out of the records, without forgetting it
type inventory struct {
	Cluster string `yaml:"cluster"`
	// Checks is what the machines of each role must answer to be published.
	Checks map[string]check `yaml:"checks"`
	Groups []listedGroup    `yaml:"groups"`
}

type listedGroup struct {
	Name        string          `yaml:"name"`
	Role        string          `yaml:"role"`
	Desired     *int            `yaml:"desired"`
	EtcdMembers []string        `yaml:"etcd_members"`
	Machines    []listedMachine `yaml:"machines"`
}

type listedMachine struct {
	ID         string `yaml:"id"`
	Address    string `yaml:"address"`
	Address6   string `yaml:"address6"`
	Public     string `yaml:"public"`
	EtcdMember string `yaml:"etcd_member"`
	Out        bool   `yaml:"out"`
}

// File is an inventory in a file, which every Read reads again.
type File struct {
	Path string
	// Health remembers how the machines were; nil remembers nothing.
	Health *Health
}

// Command is an inventory that a program prints on stdout. The program runs without a shell, in our environment.
type Command struct {
	Name string
	Args []string
	// Health remembers how the machines were; nil remembers nothing.
	Health *Health
}

var (
	_ reconcile.Fleet = File{}
	_ reconcile.Fleet = Command{}
)

// Owned is a fleet whose records have this owner, whatever the fleet itself says.
type Owned struct {
	reconcile.Fleet
	Owner string
}

// Read implements reconcile.Fleet.
func (f Owned) Read(ctx context.Context, cluster string) (record.Fleet, error) {
	out, err := f.Fleet.Read(ctx, cluster)
	out.Owner = f.Owner
	return out, err
}

// Read implements reconcile.Fleet.
func (f File) Read(ctx context.Context, cluster string) (record.Fleet, error) {
	data, err := os.ReadFile(f.Path)
	if err != nil {
		return record.Fleet{}, fmt.Errorf("reading the fleet: %w", err)
	}
	return checked(ctx, f.Path, data, cluster, f.Health)
}

// Read implements reconcile.Fleet.
func (c Command) Read(ctx context.Context, cluster string) (record.Fleet, error) {
	data, err := run.Output(ctx, c.Name, c.Args...)
	if err != nil {
		return record.Fleet{}, fmt.Errorf("asking for the fleet: %w", err)
	}
	return checked(ctx, "output of "+c.Name, data, cluster, c.Health)
}

// checked parses an inventory, and checks its machines as it says.
func checked(ctx context.Context, file string, data []byte, cluster string, h *Health) (record.Fleet, error) {
	f, checks, err := parse(file, data, cluster)
	if err == nil {
		err = h.apply(ctx, &f, checks)
	}
	if err != nil {
		return record.Fleet{}, fmt.Errorf("reading the fleet: %w", err)
	}
	return f, nil
}

// parse parses an inventory strictly: it reports all findings with their lines, and any error rejects the whole inventory.
func parse(file string, data []byte, cluster string) (record.Fleet, map[role.Role]check, error) {
	found := problem.List{}
	var in inventory
	dec := yaml.NewDecoder(bytes.NewReader(data))
	dec.KnownFields(true)
	var root yaml.Node
	switch err := dec.Decode(&in); {
	case errors.Is(err, io.EOF):
		found.Add(problem.Problem{File: file, Text: "it is empty", Hint: "an inventory without machines says groups: []"})
	case err != nil:
		_ = yaml.Unmarshal(data, &root) // what is no YAML has no fields to name
		addYAML(&found, file, err, &root)
	case !errors.Is(dec.Decode(new(yaml.Node)), io.EOF):
		found.Add(problem.Problem{File: file, Text: "there is a second YAML document", Hint: "an inventory is one document"})
	default:
		if err := yaml.Unmarshal(data, &root); err != nil {
			addYAML(&found, file, err, nil)
		}
	}
	if err := found.Err(); err != nil {
		return record.Fleet{}, nil, err
	}
	r := reader{file: file, root: root.Content[0], found: &found, ids: map[string]string{}}
	f, checks := r.fleet(in, cluster), r.checks(in, cluster)
	found.Sort()
	if err := found.Err(); err != nil {
		return record.Fleet{}, nil, err
	}
	return f, checks, nil
}

// reader validates an inventory, and knows the lines of its fields.
type reader struct {
	file  string
	root  *yaml.Node // the document's one value
	found *problem.List
	// ids maps addresses and ids to the field that has them.
	ids map[string]string
}

func (r *reader) bad(hint, format string, path []any, args ...any) {
	r.found.Add(problem.Problem{File: r.file, Line: line(r.root, path), Field: field(path), Text: fmt.Sprintf(format, args...), Hint: hint})
}

func (r *reader) fleet(in inventory, cluster string) record.Fleet {
	if in.Cluster != cluster {
		r.bad("write cluster: "+cluster+", or ask for the records of that one", "the inventory is of cluster %q, not %q", []any{"cluster"}, in.Cluster, cluster)
	}
	out := record.Fleet{Cluster: cluster}
	for i, g := range in.Groups {
		path := []any{"groups", i}
		set, err := role.ParseSet(g.Role)
		if err != nil || len(set) == 0 {
			r.bad(role.Join(role.All(), ", ")+"; several are written "+role.NewSet(role.Masters, role.Etcd).String(), "role %q is not known", append(path, "role"), g.Role)
		}
		if g.Name == "" {
			r.bad("give it one", "the group has no name", path)
		}
		members := r.members(g, path)
		for _, one := range set {
			out.Groups = append(out.Groups, r.group(g, one, cluster, members, path))
		}
	}
	return out
}

// checks returns the completed checks by their roles.
func (r *reader) checks(in inventory, cluster string) map[role.Role]check {
	out := map[role.Role]check{}
	for name, c := range in.Checks {
		of, err := role.Parse(name)
		if err != nil {
			r.bad(role.Join(role.All(), ", "), "role %q is not known", []any{"checks", name}, name)
		}
		out[of] = c.complete(of, cluster)
		for field, text := range out[of].problems() {
			r.bad("", "%s", []any{"checks", name, field}, text)
		}
	}
	return out
}

func (r *reader) group(g listedGroup, one role.Role, cluster string, members []record.Member, path []any) record.Group {
	out := record.Group{Name: g.Name, Cluster: cluster, Role: one, Desired: len(members), Members: members}
	if one == role.Etcd {
		out.EtcdMembers = g.EtcdMembers
	}
	if g.Desired != nil {
		out.Desired = *g.Desired
		if out.Desired < 0 {
			r.bad("write a number from 0", "%d machines cannot be desired", append(path, "desired"), out.Desired)
		}
	}
	return out
}

func (r *reader) members(g listedGroup, group []any) []record.Member {
	var out []record.Member
	for i, m := range g.Machines {
		path := []any{group[0], group[1], "machines", i}
		state := record.InService
		if m.Out {
			state = "Standby" // AutoScaling's state of a machine that is taken out of service
		}
		if m.ID == "" {
			r.bad("its host name, for instance", "the machine has no id", path)
		} else {
			r.once("id "+m.ID, append(path, "id"))
		}
		member := record.Member{InstanceID: m.ID, Lifecycle: state, Healthy: true, Running: true, EtcdMember: m.EtcdMember,
			Private: r.addr(m.Address, true, append(path, "address")), Private6: r.addr(m.Address6, false, append(path, "address6")),
			Public: r.addr(m.Public, true, append(path, "public"))}
		if m.Address == "" && m.Address6 == "" {
			r.bad("write address: or address6:", "the machine has no address", path)
		}
		out = append(out, member)
	}
	return out
}

// once reports a value that another machine has already.
func (r *reader) once(what string, path []any) {
	if other, ok := r.ids[what]; ok {
		r.bad("", "%s is also at %s", path, what, other)
	}
	r.ids[what] = field(path)
}

func (r *reader) addr(text string, v4 bool, path []any) netip.Addr {
	if text == "" {
		return netip.Addr{}
	}
	a, err := netip.ParseAddr(text)
	switch {
	case err != nil || a.Zone() != "":
		r.bad("", "%q is not an address", path, text)
		return netip.Addr{}
	case a.Is4() != v4:
		r.bad("IPv4 belongs to address and public, IPv6 to address6", "%s is of the other family", path, text)
	}
	r.once("address "+a.String(), path)
	return a
}

// line returns the line of the node at a path, or of its nearest parent that exists.
func line(n *yaml.Node, path []any) int {
	at := n.Line
	for _, step := range path {
		next := child(n, step)
		if next == nil {
			return at
		}
		n, at = next, next.Line
	}
	return at
}

func child(n *yaml.Node, step any) *yaml.Node {
	switch step := step.(type) {
	case int:
		if step < len(n.Content) { // an alias has none
			return n.Content[step]
		}
	case string:
		for i := 0; n.Kind == yaml.MappingNode && i < len(n.Content); i += 2 {
			if n.Content[i].Value == step {
				return n.Content[i+1]
			}
		}
	}
	return nil
}

// field formats a path: groups[0].machines[2].address.
func field(path []any) string {
	var b strings.Builder
	for _, step := range path {
		switch step := step.(type) {
		case int:
			b.WriteString("[" + strconv.Itoa(step) + "]")
		case string:
			if b.Len() > 0 {
				b.WriteByte('.')
			}
			b.WriteString(step)
		}
	}
	return b.String()
}

// addYAML adds the findings of the YAML library.
func addYAML(found *problem.List, file string, err error, root *yaml.Node) {
	yamlfile.Add(found, file, "", err, root, nil)
}
