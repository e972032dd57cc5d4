// Package record computes the DNS records that a cluster should have from its members.
//
// Its rule: pure functions. The same fleet, policy and published sets result in the same desired sets in the same
// order, whatever order they were read in; no DNS server and no clock is involved.
package record

import (
	"encoding/json"
	"net/netip"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// Set is one resource record set.
type Set struct {
	// Name is fully qualified, in lower case, with the final dot: "masters.demo.k8s.".
	Name string `json:"name"`
	// Type is "A", "AAAA", "SRV" or "TXT".
	Type string `json:"type"`
	// TTL is in whole seconds, as which it is encoded.
	TTL time.Duration `json:"-"`
	// Values are in presentation format (TXT without quotes), sorted, each once.
	Values []string `json:"values"`
}

// MarshalJSON encodes the TTL in seconds: a Duration's own number is one of nanoseconds.
func (s Set) MarshalJSON() ([]byte, error) {
	type plain Set
	return json.Marshal(struct {
		plain
		TTLSeconds int64 `json:"ttl_seconds"`
	}{plain(s), int64(s.TTL / time.Second)})
}

// Lifecycle is an instance's state as AutoScaling spells it: "InService", "Pending:Wait" …
type Lifecycle string

// The states in which a member can be published; in every other state, known or not, it is not.
const (
	PendingWait        Lifecycle = "Pending:Wait"
	PendingProceed     Lifecycle = "Pending:Proceed"
	InService          Lifecycle = "InService"
	TerminatingWait    Lifecycle = "Terminating:Wait"
	TerminatingProceed Lifecycle = "Terminating:Proceed"
)

// Member is one machine of a group.
type Member struct {
	InstanceID string    `json:"instance_id"`
	Lifecycle  Lifecycle `json:"lifecycle"`
	// Healthy is the group's health check, Running the state of the EC2 instance.
	Healthy bool `json:"healthy"`
	Running bool `json:"running"`
	// Untagged is set if the instance lacks the tag with the cluster's name, which its group has. It is published, and
	// the findings name it: commands find machines by the tag.
	Untagged bool `json:"untagged,omitempty"`
	// Private and Public are the machine's addresses of either family; the zero Addr is none.
	Private  netip.Addr `json:"private,omitzero"`
	Private6 netip.Addr `json:"private6,omitzero"`
	Public   netip.Addr `json:"public,omitzero"`
	// EtcdMember is the name of the etcd member that the machine is ("a"): the one whose volume it has, or, while nobody has
	// that volume, the one that its tag names. Empty if it is none, or another machine has the volume.
	EtcdMember string `json:"etcd_member,omitempty"`
}

// Group is one AutoScaling group, or its equivalent outside AWS.
type Group struct {
	Name    string    `json:"name"`
	Cluster string    `json:"cluster"`
	Role    role.Role `json:"role"`
	// Desired is the group's desired capacity; with 0 its record may become empty.
	Desired int      `json:"desired"`
	Members []Member `json:"members"`
	// EtcdMembers names all members of an etcd cluster ("a", "b", "c"), from the groups' tags; SRV
	// records are only published when every one has an address.
	EtcdMembers []string `json:"etcd_members,omitempty"`
}

// Fleet is a complete reading of a cluster's groups, never a partial one.
type Fleet struct {
	Cluster string  `json:"cluster"`
	Groups  []Group `json:"groups"`
	// Owner identifies where the groups are kept: an account and region, or a file on a host. Records of another owner are
	// never changed. Empty is not known, as of a fleet without groups.
	Owner string `json:"owner,omitempty"`
	// At is when the reading ended. A group that has vanished is let go by it.
	At time.Time `json:"at,omitzero"`
}
