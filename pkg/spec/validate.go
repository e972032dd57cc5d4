package spec

import (
	"fmt"
	"net/netip"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/problem/near"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/machine"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

var (
	labelForm  = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)
	memberForm = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,30}[a-z0-9])?$`)
	minorForm  = regexp.MustCompile(`^v?(1\.[0-9]+)(\.[0-9]+)?$`)
	domainForm = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`)
	ssmForm    = regexp.MustCompile(`^ssm:(/[A-Za-z0-9_.-]+)+$`)
	hookForm   = regexp.MustCompile(`^[A-Za-z0-9_/-]{1,255}$`)
)

// document checks what can be said of a document before it is completed: form, and no more.
func (v checker) document(c *Cluster) {
	v.constant("apiVersion", c.APIVersion, APIVersion)
	v.constant("kind", c.Kind, Kind)
	switch {
	case c.Name == "":
		v.hint("name", "a DNS label, as in name: demo", "is missing")
	case !labelForm.MatchString(c.Name):
		v.errorf("name", "%q is not a DNS label: small letters, digits and -, at most 63", c.Name)
	}
	v.version(c.Version)
	v.arch(c.Arch)
	if s := c.Store; s != "" && !ssmForm.MatchString(s) && !absolute(strings.TrimPrefix(s, "dir:"), strings.HasPrefix(s, "dir:")) {
		v.errorf("store", "%q is neither ssm:/path nor dir:/path", s)
	}
	switch hook := c.LaunchHook; {
	case hook != "" && !hookForm.MatchString(hook):
		v.errorf("launchHook", "%q is not the name of a lifecycle hook", hook)
	case hook == role.DrainHook || hook == role.EvictionHook:
		v.hint("launchHook", "leave it out, or write another name", "%q is the name of the stack's own hook for machines that end, and a group has each name once", hook)
	}
	if level := c.PodSecurity; level != "" && !slices.Contains(podSecurityLevels, level) {
		v.hint("podSecurity", near.DidYouMean(level, podSecurityLevels), "%q is not one of %s", level, strings.Join(podSecurityLevels, ", "))
	}
	v.serviceAccounts(c.ServiceAccounts)
	v.api(c.API)
	v.network(c.Network)
	v.groups(c.Groups)
	v.aws(c.AWS)
	v.etcd(c.Etcd)
}

// version refuses a version that there is not. A patch is refused too: which one the machines run is the image's matter, and
// one that is cut off without a word would not be what the document says.
func (v checker) version(version string) {
	known := Versions()
	if version == "" || slices.Contains(known, version) {
		return
	}
	hint := ""
	if m := minorForm.FindStringSubmatch(version); m != nil && slices.Contains(known, m[1]) {
		hint = fmt.Sprintf("write %s: the patch is that of the image's lock", m[1])
	}
	v.hint("version", hint, "%q is none of the Kubernetes versions that this program knows: %s", version, strings.Join(known, ", "))
}

func (v checker) constant(field, have, want string) {
	switch have {
	case want:
	case "":
		v.hint(field, "write "+field+": "+want, "is missing")
	default:
		v.errorf(field, "%q is not %q, the one that this program reads", have, want)
	}
}

// absolute reports whether a path is absolute and clean; also holds for a path that is not asked about.
func absolute(name string, asked bool) bool {
	return asked && path.IsAbs(name) && path.Clean(name) == name && name != "/"
}

// zoneForm is what ids of hosted zones look like, to the function as well.
var zoneForm = regexp.MustCompile(`^Z[A-Z0-9]{1,31}$`)

func (v checker) api(a API) {
	if v.source.given["api.port"] && (a.Port < 1 || a.Port > 65535) {
		v.errorf("api.port", "%d is not a port", a.Port)
	}
	for i, name := range a.Names {
		// A zone is one machine's name of an interface, and no certificate's.
		if a, err := netip.ParseAddr(name); (err != nil || a.Zone() != "") && !domainForm.MatchString(name) {
			v.errorf(at("api.names", i), "%q is neither a DNS name nor an address", name)
		}
	}
	switch z := a.Zone; {
	case z == APIZone{}:
		return
	case z.ID == "" || z.Name == "":
		v.hint("api.zone", "write id and name, as hardtack stack and Route 53 show them", "a zone has an id and a name, and one of them is missing")
	case !zoneForm.MatchString(z.ID):
		v.hint("api.zone.id", "write the id of a zone, such as Z0123456789ABC", "%q is not the id of a hosted zone", z.ID)
	case !domainForm.MatchString(z.Name):
		v.errorf("api.zone.name", "%q is not a DNS name", z.Name)
	case z.Name == role.Zone:
		v.errorf("api.zone.name", "%q is the private zone of the clusters: api.internal is the name there", z.Name)
	}
}

func (v checker) network(n Network) {
	v.prefix("network.serviceCIDR", n.ServiceCIDR, 12, 24)
	v.prefix("network.podCIDR", n.PodCIDR, 8, 24)
	if n.DNSAddress != "" {
		if a, err := netip.ParseAddr(n.DNSAddress); err != nil || !a.Is4() {
			v.errorf("network.dnsAddress", "%q is not an IPv4 address", n.DNSAddress)
		}
	}
	if n.DNSDomain != "" && !domainForm.MatchString(n.DNSDomain) {
		v.errorf("network.dnsDomain", "%q is not a DNS name", n.DNSDomain)
	}
	if n.MTU != 0 && (n.MTU < 576 || n.MTU > 9216) {
		v.errorf("network.mtu", "%d is not between 576 and 9216 bytes", n.MTU)
	}
	for i, name := range n.TimeServers {
		if _, err := netip.ParseAddr(name); err != nil && !domainForm.MatchString(name) {
			v.errorf(at("network.timeServers", i), "%q is neither a DNS name nor an address", name)
		}
	}
}

// prefix checks a range of addresses. The bounds are Kubernetes's: it takes no more than 20 bits of
// Services, and each node has a /24 of the pods' range.
func (v checker) prefix(field, text string, least, most int) {
	if text == "" {
		return
	}
	p, err := netip.ParsePrefix(text)
	switch {
	case err == nil && !p.Addr().Is4():
		v.hint(field, "write one of IPv4 addresses, such as 10.96.0.0/16", "%q is a range of IPv6 addresses: neither IPv6 nor dual stack is supported", text)
	case err != nil:
		v.errorf(field, "%q is not a range of IPv4 addresses such as 10.96.0.0/16", text)
	case p.Masked() != p:
		v.hint(field, "write "+p.Masked().String(), "%s has bits set behind its mask", text)
	case p.Bits() < least || p.Bits() > most:
		v.errorf(field, "/%d is not between /%d and /%d", p.Bits(), least, most)
	}
}

func (v checker) groups(groups []GroupSpec) {
	if v.source.given["groups"] && len(groups) == 0 {
		v.hint("groups", "leave it out for the default, or give a group", "is empty")
	}
	names := map[string]string{}
	for i, g := range groups {
		field := at("groups", i)
		v.group(field, g)
		for _, name := range g.names() {
			if first, ok := names[name]; ok {
				v.errorf(field+".name", "group %q is already at %s", name, first)
			}
			names[name] = field
		}
	}
}

// names are the groups that it becomes.
func (g GroupSpec) names() []string {
	if len(g.Members) == 0 {
		return []string{g.Name}
	}
	names := make([]string, len(g.Members))
	for i, m := range g.Members {
		names[i] = g.Name + "-" + m
	}
	return names
}

// maxGroupSize keeps a typing error from being a bill; more machines are more groups.
const maxGroupSize = 5000

func (v checker) group(field string, g GroupSpec) {
	switch {
	case g.Name == "":
		v.errorf(field+".name", "is missing")
	case !labelForm.MatchString(g.Name):
		v.errorf(field+".name", "%q is not a DNS label: small letters, digits and -, at most 63", g.Name)
	}
	roles := v.roles(field+".roles", g.Roles)
	if len(g.Roles) == 0 {
		v.errorf(field+".roles", "is missing: one or more of %s", role.Join(role.All(), ", "))
	}
	if g.Size != nil && (*g.Size < 0 || *g.Size > maxGroupSize) {
		v.errorf(field+".size", "%d is not between 0 and %d", *g.Size, maxGroupSize)
	}
	if g.Size != nil && len(g.Members) > 0 && *g.Size != len(g.Members) {
		v.hint(field+".size", "leave it out", "is %d, but there are %d members", *g.Size, len(g.Members))
	}
	if len(g.Members) > 0 && !roles.Has(role.Etcd) {
		v.errorf(field+".members", "members are etcd's, and the group has not the role %s", role.Etcd)
	}
	seen := map[string]bool{}
	for i, m := range g.Members {
		switch {
		case !memberForm.MatchString(m):
			v.errorf(at(field+".members", i), "%q is not a name of a member: small letters, digits and -, at most 32", m)
		case seen[m]:
			v.errorf(at(field+".members", i), "member %q is there twice", m)
		}
		seen[m] = true
	}
	if v.source.given[field+".cpus"] && (g.CPUs < 1 || g.CPUs > 512) {
		v.errorf(field+".cpus", "%d is not between 1 and 512", g.CPUs)
	}
	if v.source.given[field+".memory"] && (g.Memory < 256 || g.Memory > 1<<24) {
		v.errorf(field+".memory", "%d MiB is not between 256 MiB and 16 TiB", g.Memory)
	}
	v.node(field+".node", g.Node, roles)
	v.groupAWS(field+".aws", g)
}

// roles checks a list of roles.
func (v checker) roles(field string, names []string) role.Set {
	var roles []role.Role
	for i, name := range names {
		r, err := role.Parse(name)
		switch {
		case err != nil:
			v.hint(at(field, i), near.DidYouMean(name, strings.Fields(role.Join(role.All(), " "))), "%v", err)
		case slices.Contains(roles, r):
			v.errorf(at(field, i), "role %s is there twice", r)
		}
		roles = append(roles, r)
	}
	return role.NewSet(roles...)
}

// namings are the values of node.naming.
var namings = []string{"auto", "ip-name", "instance-id", "hostname"}

func (v checker) node(field string, n Node, roles role.Set) {
	if n.Naming != "" && !slices.Contains(namings, n.Naming) {
		v.hint(field+".naming", near.DidYouMean(n.Naming, namings), "%q is not one of %s", n.Naming, strings.Join(namings, ", "))
	}
	for i, t := range n.Taints {
		if _, err := machine.ParseTaint(t); err != nil {
			v.errorf(at(field+".taints", i), "%v", err)
		}
	}
	for key, value := range n.Labels {
		if hint, err := machine.CheckLabel(key, value); err != nil {
			v.hint(join(field+".labels", key), hint, "%v", err)
		}
	}
	if n.MaxPods < 0 || n.MaxPods > 1024 {
		v.errorf(field+".maxPods", "%d is not between 0 and 1024", n.MaxPods)
	}
	if (len(n.Labels)+len(n.Taints) > 0 || n.PodsReachMetadata) && len(roles) > 0 && !roles.Has(role.Minions) {
		v.errorf(field, "the group's machines are no nodes: they have not the role %s", role.Minions)
	}
}
