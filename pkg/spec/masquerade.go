package spec

import (
	"net/netip"
	"strings"

	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// masqueradeFile has the rules of network.nonMasqueradeCIDRs.
const masqueradeFile = "/etc/hardtack/masquerade.nft"

// nonMasquerade completes and checks the ranges to which pods go by their own addresses.
func (f *completer) nonMasquerade() {
	const field = "network.nonMasqueradeCIDRs"
	given := f.in.Network.NonMasqueradeCIDRs
	pods, _ := netip.ParsePrefix(f.out.Cluster.Network.PodCIDR)
	var before []netip.Prefix
	for i, text := range given {
		at := at(field, i)
		f.prefix(at, text, 0, 32)
		p, err := netip.ParsePrefix(text)
		if err != nil || !p.Addr().Is4() || p.Masked() != p {
			continue
		}
		for _, b := range before {
			if b.Overlaps(p) {
				f.hint(at, "leave the smaller one out", "%s overlaps %s", p, b)
			}
		}
		switch {
		case p.Bits() == 0:
			f.warn(at, "", "pods go to every address by their own: only where routers know the way back to %s", pods)
		case pods.IsValid() && pods.Contains(p.Addr()) && p.Bits() >= pods.Bits():
			f.hint(at, "leave it out", "%s is of pods, which go to each other by their own addresses anyhow", p)
		}
		before = append(before, p)
	}
	f.out.Cluster.Network.NonMasqueradeCIDRs = listOrDefault(f, field, given, nil, byHardtack)
}

// masquerade is the file with the rules, and what loads it. Of the chains that translate sources the first one that does so for a connection is the
// only one: a translation to the address that it has keeps flannel's from taking place. What kube-proxy marks for translation, with the bit of
// KUBE-MARK-MASQ, is left to it: without it answers would not come back.
func (c *Complete) masquerade(g Group) (files []File, commands []string) {
	n := c.Cluster.Network
	if len(n.NonMasqueradeCIDRs) == 0 || !g.Roles.Has(role.Minions) {
		return nil, nil
	}
	text := `# Pods go to these ranges by their own addresses. Loading it again replaces it.
table ip hardtack-masquerade
delete table ip hardtack-masquerade
table ip hardtack-masquerade {
	chain postrouting {
		type nat hook postrouting priority srcnat - 10; policy accept;
		ip saddr ` + n.PodCIDR + ` ip daddr { ` + strings.Join(n.NonMasqueradeCIDRs, ", ") + ` } meta mark & 0x4000 == 0 snat to ip saddr
	}
}
`
	return []File{{Path: masqueradeFile, Content: []byte(text)}}, []string{"/usr/sbin/nft --file " + masqueradeFile}
}
