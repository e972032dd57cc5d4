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
	// DefaultTTL is short, since machines learn from the records that another machine is gone.
	DefaultTTL = 5 * time.Second
	// DefaultSuffix is the zone; every cluster is a label below it.
	DefaultSuffix = role.Zone + "."
	// DefaultSubset is how many addresses of a sharded record its own name lists: 28 A records fit an
	// answer of 512 bytes with room for a longer name (29 fit with a short one).
	DefaultSubset = 28
)

// NegativeTTL is what a zone's SOA should say at most: how long a resolver keeps a "no such name". A
// new zone of Route 53 has 900 s, and a machine that asks too early would wait for 15 minutes.
const NegativeTTL = 5 * time.Second

// VanishAfter is how long a group must be missing before its machines leave the records. A tag that is replaced, and a
// reading that has missed a group, are over by then. The machines of a deleted group have left before: AutoScaling ends
// them while the group is still there.
const VanishAfter = time.Minute

// The rules of findings that others look for.
const (
	// RuleNotOwned is of records that are not this fleet's to change.
	RuleNotOwned = "not-owned"
	// RuleKept is of a name that keeps its last addresses, though no machine of it is well.
	RuleKept = "kept"
	// RuleEmpty is of a name without any address, though its groups want machines.
	RuleEmpty = "empty"
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

// Policy holds the operator's settings for the records of every cluster in a zone.
type Policy struct {
	// TTL is the TTL of every set, in whole seconds; 0 is DefaultTTL.
	TTL time.Duration `json:"ttl"`
	// Suffix is the zone, with or without the final dot: "k8s."; empty is DefaultSuffix.
	Suffix string `json:"suffix"`
	// Subset is how many addresses the name of a sharded record lists; 0 is DefaultSubset.
	Subset int `json:"subset"`
	// Placeholder is the address in a record without members, so that no resolver caches a "no such name" for the
	// zone's negative TTL. With the zero Addr such a record does not exist.
	Placeholder netip.Addr `json:"placeholder,omitzero"`
	Outputs     Outputs    `json:"outputs"`
	// TakeOver changes records that are not this fleet's, and makes them its own: a person has asked for it.
	TakeOver bool `json:"-"`
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

// complete replaces zero fields by their defaults, and spells the suffix canonically.
func (p Policy) complete() Policy {
	p.TTL = cmp.Or(p.TTL, DefaultTTL)
	p.Subset = cmp.Or(p.Subset, DefaultSubset)
	p.Suffix = strings.ToLower(strings.TrimSuffix(cmp.Or(p.Suffix, DefaultSuffix), ".")) + "."
	p.Placeholder = p.Placeholder.Unmap()
	return p
}

// Zone is the zone's name: "k8s.".
func (p Policy) Zone() string { return p.complete().Suffix }

// Domain is the name below which a cluster's records are: "demo.k8s.".
func (p Policy) Domain(cluster string) string { return cluster + "." + p.complete().Suffix }

// Placeholders returns the records of a new cluster that has no groups yet: the first machine gets an answer, and asks
// again after the TTL.
func Placeholders(cluster string, p Policy) []Set {
	b := newBuilder(cluster, p, Limits{}, nil)
	b.addControl(nil)
	if p.Outputs.Roles {
		for _, r := range role.All() {
			b.addAddresses(string(r), nil, privateAddrs)
		}
	}
	b.addAPI(nil)
	return b.sorted()
}
