package lab

import (
	"encoding/json"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/awsfake"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/reason"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/timeline"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// Status is the current state of a lab.
type Status struct {
	Lab     string `json:"lab"`
	Cluster string `json:"cluster"`
	// Revision changes with every change of the rest.
	Revision uint64    `json:"revision"`
	Since    time.Time `json:"since"`
	Image    string    `json:"image"`
	// Ready is true if every group has its size in service, at least one group is not empty, and the Node of every
	// minion is Ready.
	Ready    bool            `json:"ready"`
	Groups   []GroupStatus   `json:"groups"`
	Machines []MachineStatus `json:"machines"`
	Records  []Record        `json:"records"`
	Nodes    []Node          `json:"nodes"`
	// API is the API server's forwarded address on this computer.
	API string `json:"api,omitempty"`
	// Outside counts the dropped packets to addresses outside of the network.
	Outside []Outside `json:"outside"`
	// Calls counts the calls of each AWS API.
	Calls map[string]int `json:"calls"`
}

// GroupStatus is one AutoScaling group.
type GroupStatus struct {
	Name      string `json:"name"`
	Roles     string `json:"roles"`
	Desired   int    `json:"desired"`
	InService int    `json:"in_service"`
}

// MachineStatus is the state of one machine, running or ended.
type MachineStatus struct {
	ID      string     `json:"id"`
	Group   string     `json:"group"`
	Roles   string     `json:"roles"`
	Address netip.Addr `json:"address"`
	// Name is the machine's private DNS name, and the name of its Node.
	Name   string `json:"name"`
	Member string `json:"etcd_member,omitempty"`
	// Image is the id of its image.
	Image string `json:"image"`
	// Volume is the id of the attached volume; empty if it has none.
	Volume string `json:"volume,omitempty"`
	// Power is "pending", "on" or "off". Lifecycle and Health are the AutoScaling group's states of it, empty once the
	// group has removed it.
	Power     string    `json:"power"`
	Lifecycle string    `json:"lifecycle,omitempty"`
	Health    string    `json:"health,omitempty"`
	PID       int       `json:"pid,omitempty"`
	Launched  time.Time `json:"launched"`
	PoweredOn time.Time `json:"powered_on,omitzero"`
	Ended     time.Time `json:"ended,omitzero"`
	// End is why it has ended; empty while it runs.
	End string `json:"end,omitempty"`
	// Reached are the phases of its boot; LastWord is the time of its last output.
	Reached  []Reached `json:"reached"`
	LastWord time.Time `json:"last_word,omitzero"`
	// Failures are the current failures that it has reported.
	Failures []reason.Failure `json:"failures,omitempty"`
	// Timeline is the agent's timeline of the boot, once every role works.
	Timeline json.RawMessage `json:"timeline,omitempty"`
	// NodeReady is nil if the machine is not a node.
	NodeReady *bool `json:"node_ready,omitempty"`
}

// Phase is the last phase that the machine has reached.
func (m MachineStatus) Phase() timeline.Phase {
	if len(m.Reached) == 0 {
		return ""
	}
	return m.Reached[len(m.Reached)-1].Phase
}

// Record is a record set of the cluster.
type Record struct {
	Name   string   `json:"name"`
	Type   string   `json:"type"`
	TTL    int64    `json:"ttl"`
	Values []string `json:"values"`
}

// Node is the state of a Node.
type Node struct {
	Name  string `json:"name"`
	Ready bool   `json:"ready"`
	// Why is the condition's message if the node is not ready.
	Why string `json:"why,omitempty"`
}

// status collects the state of the lab.
func (d *daemon) status() Status {
	d.board.mu.Lock()
	revision := d.board.revision
	d.board.mu.Unlock()
	s := Status{
		Lab: d.Home.Name, Cluster: d.Plan.Cluster.Name, Revision: revision, Since: d.since, Image: d.Image,
		Records: d.region.records(), Nodes: d.cluster.lastNodes(), API: d.cluster.address(), Outside: d.runner.Outside(),
		Calls: d.region.account.Calls(), Machines: []MachineStatus{},
	}
	instances := map[string]awsfake.Instance{}
	for _, g := range d.Plan.groupsIn(d.region.account) {
		name := d.Plan.AutoScaling(g)
		now, _ := d.region.account.AutoScaling().Group(name) // a group that does not exist yet has size 0
		gs := GroupStatus{Name: g.Name, Roles: g.Roles.String(), Desired: now.Desired}
		for _, i := range d.region.account.AutoScaling().Instances(name) {
			instances[i.ID] = i
			if i.State == awsfake.StateInService {
				gs.InService++
			}
		}
		s.Groups = append(s.Groups, gs)
	}
	attached := map[string]string{}
	for _, v := range d.region.account.EC2().Volumes() {
		if v.Attachment.State == awsfake.Attached {
			attached[v.Attachment.Instance] = v.ID
		}
	}
	for _, g := range d.host.list() {
		m := g.status(instances[g.id], s.Nodes)
		m.Volume = attached[g.id]
		s.Machines = append(s.Machines, m)
	}
	s.Ready = s.complete()
	return s
}

// complete reports whether all machines that the groups want are in service and all minions Ready.
func (s Status) complete() bool {
	wanted := 0
	for _, g := range s.Groups {
		if g.InService != g.Desired {
			return false
		}
		wanted += g.Desired
	}
	for _, m := range s.Machines {
		if m.Lifecycle == awsfake.StateInService && m.NodeReady != nil && !*m.NodeReady {
			return false
		}
	}
	return wanted > 0
}

func (g *guest) status(i awsfake.Instance, nodes []Node) MachineStatus {
	g.mu.Lock()
	defer g.mu.Unlock()
	m := MachineStatus{
		ID: g.id, Group: g.group.Name, Roles: g.group.Roles.String(), Address: g.addr, Name: hostName(g.addr), Member: g.group.Member, Image: g.machine.Image,
		Lifecycle: i.State, Health: i.Health, Launched: g.made, PoweredOn: g.started, Ended: g.ended, End: g.end, Power: "pending", Reached: []Reached{},
	}
	switch {
	case !g.ended.IsZero():
		m.Power = "off"
	case g.running != nil:
		m.Power, m.PID = "on", g.running.PID()
	}
	if g.scan != nil {
		said := g.scan.state()
		m.Reached, m.Failures, m.Timeline, m.LastWord = said.Reached, said.Failures, said.Timeline, said.Last
	}
	if g.group.Roles.Has(role.Minions) {
		ready := false
		for _, n := range nodes {
			ready = ready || n.Name == m.Name && n.Ready
		}
		m.NodeReady = &ready
	}
	return m
}

// hostName is the private DNS name of the machine with this address, as in its metadata.
func hostName(addr netip.Addr) string {
	return "ip-" + strings.ReplaceAll(addr.String(), ".", "-") + "." + domain
}

// domain is the domain of private DNS names, as in every EC2 region but us-east-1.
const domain = regionName + ".compute.internal"

// records are the cluster's record sets in the zone, without control records.
func (r *region) records() []Record {
	list := []Record{}
	sets, err := r.account.Route53().RecordSets(r.zoneID())
	if err != nil {
		return list // the zone does not exist yet
	}
	suffix := "." + role.Domain(r.plan.Cluster.Name) + "."
	for _, s := range sets {
		if !strings.HasSuffix(s.Name, suffix) || strings.HasPrefix(s.Name, "_hardtack.") {
			continue
		}
		list = append(list, Record{Name: s.Name, Type: s.Type, TTL: s.TTL, Values: slices.Clone(s.Values)})
	}
	return list
}

// find returns the machines that match a name; see Find.
func (s Status) find(name string) []MachineStatus {
	var found []MachineStatus
	for _, m := range s.Machines {
		short := strings.TrimPrefix(m.ID, "i-")
		exact := m.ID == name || m.Address.String() == name || m.Name == name || strings.TrimSuffix(m.Name, "."+domain) == name
		if exact && m.Power != "off" {
			return []MachineStatus{m}
		}
		byID := len(name) >= 3 && (strings.HasPrefix(m.ID, name) || strings.HasPrefix(short, name))
		if exact || byID || m.Group == name && m.Power != "off" {
			found = append(found, m)
		}
	}
	return found
}

// Names are all names that Find accepts, for shell completion.
func (s Status) Names() []string {
	names := map[string]bool{}
	for _, m := range s.Machines {
		if m.Power != "off" {
			names[m.ID] = true
		}
	}
	for _, g := range s.Groups {
		if len(s.find(g.Name)) == 1 {
			names[g.Name] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}
