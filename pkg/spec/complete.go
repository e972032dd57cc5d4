package spec

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/problem"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/machine"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// The defaults that Hardtack decides: the addresses are those that the image has baked in, and a test
// compares them.
const (
	defaultServiceCIDR = "10.96.0.0/16"
	defaultPodCIDR     = "10.244.0.0/14"
	defaultDNSDomain   = machine.ImageDNSDomain
	defaultPort        = role.DefaultAPIPort
)

// byHardtack marks a default of this program.
var byHardtack = Origin{Default, "hardtack"}

// completer fills one document.
type completer struct {
	checker
	in       *Cluster
	image    *Image
	out      *Complete
	upstream *upstream
}

// Complete fills in every field that the document leaves out. The list holds the findings that need all values to be
// known; the result is nil if one of them is an error.
func (c *Cluster) Complete(image *Image) (*Complete, problem.List) {
	var problems problem.List
	f := completer{
		checker: checker{source: c.source, problems: &problems}, in: c, image: image,
		out: &Complete{Cluster: &Cluster{source: c.source}, Origins: map[string]Origin{}},
	}
	f.settings()
	var err error
	if f.upstream, err = readUpstream(f.out.Cluster.Version); err != nil {
		f.errorf("version", "%v", err)
	} else {
		f.out.upstream = f.upstream
		f.components()
		f.quota()
		f.nodes()
		f.possible()
	}
	f.extras()
	if problems.Err() == nil {
		f.readable()
	}
	problems.Sort()
	if problems.Err() != nil {
		return nil, problems
	}
	return f.out, problems
}

// settings completes what the components' flags are derived from.
func (f *completer) settings() {
	f.top()
	f.network()
	f.timeServers()
	f.nonMasquerade()
	f.machines()
	f.proxy()
	f.registries()
	f.podSecurity()
	f.serviceAccounts()
	f.groups()
	f.etcdMembers()
	f.aws()
	f.addonNeeds()
	f.etcd()
}

// componentFaults are the findings about the components of a document that has others: its components, in a cluster that
// is the default otherwise.
func (c *Cluster) componentFaults(image *Image) problem.List {
	in := &Cluster{Header: c.Header, Name: "demo", Version: c.Version, Components: c.Components, source: c.source}
	if !slices.Contains(Versions(), in.Version) {
		in.Version = DefaultVersion
	}
	var others, problems problem.List
	f := completer{
		checker: checker{source: c.source, problems: &others}, in: in, image: image,
		out: &Complete{Cluster: &Cluster{source: c.source}, Origins: map[string]Origin{}},
	}
	f.settings()
	var err error
	if f.upstream, err = readUpstream(in.Version); err != nil {
		return nil
	}
	f.out.upstream = f.upstream
	f.problems = &problems
	f.components()
	return problems
}

// orDefault returns the document's value, or else the default, and records the origin. A written value that equals the
// default counts as the default.
func orDefault[T comparable](f *completer, field string, given, def T, o Origin) T {
	if f.source.given[field] && given != def {
		f.out.Origins[field] = Origin{Kind: User}
		return given
	}
	f.out.Origins[field] = o
	return def
}

// listOrDefault is orDefault for lists. An empty list in the document is a value.
func listOrDefault(f *completer, field string, given, def []string, o Origin) []string {
	if f.source.given[field] && !slices.Equal(given, def) {
		f.out.Origins[field] = Origin{Kind: User}
		return append([]string{}, given...)
	}
	f.out.Origins[field] = o
	return append([]string{}, def...)
}

func (f *completer) top() {
	in, out := f.in, f.out.Cluster
	out.Header, out.Name = in.Header, in.Name
	for _, field := range []string{"apiVersion", "kind", "name"} {
		f.out.Origins[field] = Origin{Kind: User}
	}
	out.Version, f.out.Origins["version"] = cmp.Or(in.Version, DefaultVersion), byHardtack
	if f.source.given["version"] {
		// Also where it equals the default: the next default is another, and this cluster's version stays what was written.
		f.out.Origins["version"] = Origin{Kind: User}
	}
	f.arch()
	out.Store = orDefault(f, "store", in.Store, machine.DefaultStore(in.Name), Origin{Derived, "name"})
	hook := machine.DefaultLaunchHook
	if !inCloud(out.Store) {
		hook = machine.NoHook
	}
	out.LaunchHook = orDefault(f, "launchHook", in.LaunchHook, hook, Origin{Derived, "store"})
	out.API.Port = orDefault(f, "api.port", in.API.Port, defaultPort, byHardtack)
	out.API.Names = listOrDefault(f, "api.names", in.API.Names, nil, byHardtack)
	out.API.Internal = orDefault(f, "api.internal", in.API.Internal, false, byHardtack)
	out.API.Zone.ID = orDefault(f, "api.zone.id", in.API.Zone.ID, "", byHardtack)
	out.API.Zone.Name = orDefault(f, "api.zone.name", in.API.Zone.Name, "", byHardtack)
	out.Addons = listOrDefault(f, "addons", in.Addons, nil, byHardtack)
	f.addons()
	f.addonImages()
}

// inCloud reports whether a cluster with that store has machines that know their groups.
func inCloud(store string) bool { return strings.HasPrefix(store, "ssm:") }

func (f *completer) network() {
	in, out := f.in.Network, &f.out.Cluster.Network
	out.ServiceCIDR = orDefault(f, "network.serviceCIDR", in.ServiceCIDR, defaultServiceCIDR, byHardtack)
	out.PodCIDR = orDefault(f, "network.podCIDR", in.PodCIDR, defaultPodCIDR, byHardtack)
	out.DNSAddress = orDefault(f, "network.dnsAddress", in.DNSAddress, machine.DNSOf(out.ServiceCIDR), Origin{Derived, "network.serviceCIDR"})
	out.DNSDomain = orDefault(f, "network.dnsDomain", in.DNSDomain, defaultDNSDomain, byHardtack)
	out.MTU = orDefault(f, "network.mtu", in.MTU, 0, byHardtack)
	services, err1 := netip.ParsePrefix(out.ServiceCIDR)
	pods, err2 := netip.ParsePrefix(out.PodCIDR)
	dns, err3 := netip.ParseAddr(out.DNSAddress)
	if err1 != nil || err2 != nil || err3 != nil {
		return // the document's own check has said so
	}
	f.free("network.serviceCIDR", services)
	f.free("network.podCIDR", pods)
	if services.Overlaps(pods) {
		f.errorf("network.podCIDR", "%s overlaps the Services' range %s", pods, services)
	}
	switch {
	case !services.Contains(dns):
		f.errorf("network.dnsAddress", "%s is not in the Services' range %s", dns, services)
	case dns == services.Addr() || dns == services.Addr().Next():
		f.errorf("network.dnsAddress", "%s is taken: the range's first address is the API's Service", dns)
	}
}

// defaultGroups is the cluster of a document without groups.
func defaultGroups() []GroupSpec {
	one, two := 1, 2
	return []GroupSpec{
		{Name: string(role.Masters), Roles: []string{string(role.Masters), string(role.Etcd)}, Size: &one},
		{Name: string(role.Minions), Roles: []string{string(role.Minions)}, Size: &two},
	}
}

func (f *completer) groups() {
	groups := f.in.Groups
	written := len(groups) > 0
	if !written {
		groups = defaultGroups()
	}
	for i, g := range groups {
		f.group(at("groups", i), g, written, groups)
	}
}

// group completes one group. The fields of a group that is written are the user's by themselves; that a
// default group comes again, written out, changes no origin.
func (f *completer) group(field string, g GroupSpec, written bool, all []GroupSpec) {
	o := Origin{Kind: User}
	if !written || f.isDefault() {
		o = byHardtack
	}
	roles := g.set()
	out := GroupSpec{Name: g.Name, Roles: append([]string{}, g.Roles...), Members: append([]string{}, g.Members...)}
	for _, name := range []string{".name", ".roles"} {
		f.out.Origins[field+name] = o
	}
	size := 1
	from := byHardtack
	if len(g.Members) > 0 {
		size, from = len(g.Members), Origin{Derived, field + ".members"}
		f.out.Origins[field+".members"] = o
	} else {
		f.out.Origins[field+".members"] = byHardtack
	}
	if g.Size != nil && *g.Size != size {
		size, from = *g.Size, o
	}
	out.Size = &size
	f.out.Origins[field+".size"] = from
	cpus, memory := MachineSize(roles)
	out.CPUs = orDefault(f, field+".cpus", g.CPUs, cpus, byHardtack)
	out.Memory = orDefault(f, field+".memory", g.Memory, memory, Origin{Derived, field + ".roles"})
	out.Node = f.node(field+".node", g.Node, roles, all)
	out.AWS = f.groupAWS(field+".aws", g.AWS, out, all)
	f.out.Cluster.Groups = append(f.out.Cluster.Groups, out)
	f.expand(out, roles)
}

// isDefault reports whether the groups as written are the default ones in names, roles, members and size.
func (f *completer) isDefault() bool {
	return slices.EqualFunc(f.in.Groups, defaultGroups(), func(a, b GroupSpec) bool {
		return a.Name == b.Name && slices.Equal(a.Roles, b.Roles) && len(a.Members) == 0 && a.Size != nil && *a.Size == *b.Size
	})
}

func (g GroupSpec) set() role.Set {
	var roles []role.Role
	for _, r := range g.Roles {
		roles = append(roles, role.Role(r))
	}
	return role.NewSet(roles...)
}

// MachineSize is what a machine of these roles needs, with room: CPUs, and MiB of memory.
func MachineSize(roles role.Set) (cpus, memory int) {
	for _, r := range roles {
		memory += r.Profile().Memory
	}
	return 2, max(memory, 1024)
}

// controlPlaneTaint keeps pods that do not tolerate it off masters that are minions too.
const controlPlaneTaint = "node-role.kubernetes.io/control-plane=:NoSchedule"

func (f *completer) node(field string, n Node, roles role.Set, all []GroupSpec) Node {
	out := Node{Naming: orDefault(f, field+".naming", n.Naming, "auto", byHardtack)}
	// A machine's agent knows the pods' range, and not how long each node's share of it is.
	most, from := 0, byHardtack
	if mask, flag := f.in.nodeMask(); mask > machine.NodeMask && mask <= longestMask && machine.PodRoom(mask) < machine.UsualPods {
		most, from = machine.PodRoom(mask), Origin{Derived, flag}
	}
	out.MaxPods = orDefault(f, field+".maxPods", n.MaxPods, most, from)
	out.PodsReachMetadata = orDefault(f, field+".podsReachMetadata", n.PodsReachMetadata, false, byHardtack)
	out.Labels = map[string]string{}
	for key, value := range n.Labels {
		out.Labels[key] = value
		f.out.Origins[join(field+".labels", key)] = Origin{Kind: User}
	}
	if len(out.Labels) == 0 {
		f.out.Origins[field+".labels"] = byHardtack
	}
	plain := slices.ContainsFunc(all, func(g GroupSpec) bool { return g.set().Has(role.Minions) && !g.set().Has(role.Masters) })
	var taints []string
	from = byHardtack
	if roles.Has(role.Masters) && roles.Has(role.Minions) && plain {
		taints, from = []string{controlPlaneTaint}, Origin{Derived, "groups"}
	}
	out.Taints = listOrDefault(f, field+".taints", n.Taints, taints, from)
	return out
}

// expand adds the groups that a written one becomes.
func (f *completer) expand(g GroupSpec, roles role.Set) {
	tag := role.Role("")
	if len(g.Roles) > 0 {
		tag = role.Role(g.Roles[0])
	}
	one := Group{Name: g.Name, Roles: roles, Tag: tag, Size: *g.Size, CPUs: g.CPUs, Memory: g.Memory, Node: g.Node, AWS: g.AWS}
	if len(g.Members) == 0 {
		f.out.Groups = append(f.out.Groups, one)
		return
	}
	for i, name := range g.names() {
		one.Name, one.Member, one.Size, one.AWS.Max = name, g.Members[i], 1, 1
		f.out.Groups = append(f.out.Groups, one)
	}
}

// etcdMembers decides whether etcd is one member beside its API server or a cluster of names, and finds
// what cannot work.
func (f *completer) etcdMembers() {
	var members []string
	unnamed, machines, masters := 0, 0, 0
	for i, g := range f.out.Cluster.Groups {
		if g.set().Has(role.Masters) {
			masters++
		}
		if !g.set().Has(role.Etcd) {
			continue
		}
		for _, m := range g.Members {
			if slices.Contains(members, m) {
				f.errorf(at("groups", i)+".members", "member %q is in two groups", m)
			}
			members = append(members, m)
		}
		if len(g.Members) == 0 {
			unnamed++
			machines += *g.Size
			if *g.Size > 1 {
				f.hint(at("groups", i)+".members", "name them, as in members: [a, b, c]",
					"are missing: each of the %d machines is a member of etcd with a name of its own", *g.Size)
			} else if !g.set().Has(role.Masters) {
				f.hint(at("groups", i)+".members", "name it, as in members: [a]",
					"are missing: an etcd that is not beside its API server is found by its member's name")
			}
		}
	}
	switch {
	case masters > 0 && unnamed == 0 && len(members) == 0:
		f.hint("groups", "add the role etcd to the masters' group", "there are masters and no group has the role %s", role.Etcd)
	case unnamed > 0 && (len(members) > 0 || unnamed > 1):
		f.errorf("groups", "some groups with the role %s have members with names and some have not", role.Etcd)
	case unnamed > 0 && masters > 1:
		f.hint("groups", "name its member", "a group of masters has no etcd, and an etcd member without a name answers only on its own machine")
	}
	for i := range f.out.Groups {
		g := &f.out.Groups[i]
		g.Members = members
		if len(members) == 0 && g.Roles.Has(role.Etcd) {
			g.Member = machine.LoneMember
		}
	}
}
