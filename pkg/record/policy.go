package record

import (
	"cmp"
	"net/netip"
	"strings"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// Defaults of a Policy.
const (
	// DefaultTTL is short, since a record is how a machine learns that another one has gone.
	DefaultTTL = 5 * time.Second
	// DefaultSuffix is the zone below which every cluster is a label.
	DefaultSuffix = "k8s."
	// DefaultSubset is how many addresses of a sharded record its own name lists: 28 A records fit an
	// answer of 512 bytes with room for a longer name (29 fit with a short one).
	DefaultSubset = 28
)

// Outputs says which records a zone gets. A public zone has a policy, and a sync, of its own, with
// only APIPublic set.
type Outputs struct {
	// Roles are masters, minions and etcd, the etcd-<member> names and etcd's SRV records.
	Roles bool `json:"roles"`
	// APIInternal is api.internal.<cluster>: the masters' private addresses.
	APIInternal bool `json:"api_internal"`
	// APIPublic is api.<cluster>: the masters' public addresses.
	APIPublic bool `json:"api_public"`
}

// Policy is what an operator decides about the records of every cluster in a zone.
type Policy struct {
	// TTL is that of every set, in whole seconds; 0 is DefaultTTL.
	TTL time.Duration `json:"ttl"`
	// Suffix is the zone, with or without the final dot: "k8s."; empty is DefaultSuffix.
	Suffix string `json:"suffix"`
	// Subset is how many addresses the name of a sharded record lists; 0 is DefaultSubset.
	Subset int `json:"subset"`
	// Placeholder is what an address record lists while it has no member, so that no resolver keeps a
	// "no such name" for the zone's negative TTL. The zero Addr: such a record does not exist.
	Placeholder netip.Addr `json:"placeholder,omitzero"`
	Outputs     Outputs    `json:"outputs"`
}

// DefaultPolicy is the policy of a private zone. Its placeholder, 192.0.2.1, is documentation space
// (RFC 5737): no machine has it.
func DefaultPolicy() Policy {
	return Policy{
		TTL:         DefaultTTL,
		Suffix:      DefaultSuffix,
		Subset:      DefaultSubset,
		Placeholder: netip.AddrFrom4([4]byte{192, 0, 2, 1}),
		Outputs:     Outputs{Roles: true},
	}
}

// complete sets what is zero to its default and the suffix to its canonical spelling.
func (p Policy) complete() Policy {
	p.TTL = cmp.Or(p.TTL, DefaultTTL)
	p.Subset = cmp.Or(p.Subset, DefaultSubset)
	p.Suffix = strings.ToLower(strings.TrimSuffix(cmp.Or(p.Suffix, DefaultSuffix), ".")) + "."
	p.Placeholder = p.Placeholder.Unmap()
	return p
}

// Domain is the name below which a cluster's records are: "demo.k8s.".
func (p Policy) Domain(cluster string) string { return cluster + "." + p.complete().Suffix }

// Placeholders are the records that a cluster is created with, before it has a group: so the first
// machine that asks is answered, and asks again after the TTL.
func Placeholders(cluster string, p Policy) []Set {
	b := newBuilder(cluster, p, Limits{}, nil)
	b.control(nil)
	if p.Outputs.Roles {
		for _, r := range role.All() {
			b.addresses(string(r), nil, privateAddrs)
		}
	}
	b.api(nil)
	return b.sorted()
}
