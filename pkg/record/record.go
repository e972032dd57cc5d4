// Package record computes what the DNS records of a cluster should be from who its members are.
//
// Its rule: values to values. The same fleet, policy and published sets give the same desired sets in
// the same order, whatever order they were read in; nothing here knows a DNS server or a clock.
package record

import (
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
	// TTL is in whole seconds.
	TTL time.Duration `json:"ttl"`
	// Values are in presentation format (TXT without quotes), sorted, each once.
	Values []string `json:"values"`
}

// Lifecycle is an instance's state as AutoScaling spells it: "InService", "Pending:Wait" …
type Lifecycle string

// The states that a gate can let pass; every other state, one that is not known included, is out.
const (
	PendingWait        Lifecycle = "Pending:Wait"
	PendingProceed     Lifecycle = "Pending:Proceed"
	InService          Lifecycle = "InService"
	TerminatingWait    Lifecycle = "Terminating:Wait"
	TerminatingProceed Lifecycle = "Terminating:Proceed"
)

// Member is one machine of a group as it was read.
type Member struct {
	InstanceID string    `json:"instance_id"`
	Lifecycle  Lifecycle `json:"lifecycle"`
	// Healthy is the group's verdict, Running that of EC2.
	Healthy bool `json:"healthy"`
	Running bool `json:"running"`
	// Private and Public are the machine's addresses of either family; the zero Addr is none.
	Private  netip.Addr `json:"private,omitzero"`
	Private6 netip.Addr `json:"private6,omitzero"`
	Public   netip.Addr `json:"public,omitzero"`
	// EtcdMember is the name of the member whose volume (or tag) the machine holds: "a"; else empty.
	EtcdMember string `json:"etcd_member,omitempty"`
}

// Group is one AutoScaling group, or what stands for it on bare metal.
type Group struct {
	Name    string    `json:"name"`
	Cluster string    `json:"cluster"`
	Role    role.Role `json:"role"`
	// Desired is the capacity that the group wants; 0 empties its record.
	Desired int      `json:"desired"`
	Members []Member `json:"members"`
	// EtcdMembers names all members of an etcd cluster ("a", "b", "c"), from the groups' tags; SRV
	// records are only published when every one has an address.
	EtcdMembers []string `json:"etcd_members,omitempty"`
}

// Fleet is one whole, consistent reading of a cluster's groups. A partial reading is never a Fleet.
type Fleet struct {
	Cluster string  `json:"cluster"`
	Groups  []Group `json:"groups"`
}
