package lab

import (
	"encoding/json"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/agent/reason"
	"github.com/hardtack/packer-plugin-hardtack/pkg/awsfake"
)

// Status is a lab as it is now.
type Status struct {
	Lab     string `json:"lab"`
	Cluster string `json:"cluster"`
	// Revision changes with every change of the rest.
	Revision uint64    `json:"revision"`
	Since    time.Time `json:"since"`
	Image    string    `json:"image"`
	// Ready is true when every group has its size in service, one at least has a size, and every minion's Node is Ready.
	Ready    bool            `json:"ready"`
	Groups   []GroupStatus   `json:"groups"`
	Machines []MachineStatus `json:"machines"`
	Records  []Record        `json:"records"`
	Nodes    []Node          `json:"nodes"`
	// API is the API server's forwarded address on this computer.
	API string `json:"api,omitempty"`
	// Outside is what machines wanted from outside and did not get.
	Outside []Outside `json:"outside"`
	// Calls is how often each AWS API was called.
	Calls map[string]int `json:"calls"`
}

// GroupStatus is one AutoScaling group.
type GroupStatus struct {
	Name      string `json:"name"`
	Roles     string `json:"roles"`
	Desired   int    `json:"desired"`
	InService int    `json:"in_service"`
}

// MachineStatus is one machine, those that have ended included.
type MachineStatus struct {
	ID      string     `json:"id"`
	Group   string     `json:"group"`
	Roles   string     `json:"roles"`
	Address netip.Addr `json:"address"`
	// Name is the machine's private DNS name, and its Node's.
	Name   string `json:"name"`
	Member string `json:"etcd_member,omitempty"`
	// Image is the id of the image that it was started from.
	Image  string `json:"image"`
	Volume string `json:"volume,omitempty"`
	// Power is "pending", "on" or "off"; Lifecycle and Health are the group's words, empty once it has forgotten it.
	Power     string    `json:"power"`
	Lifecycle string    `json:"lifecycle,omitempty"`
	Health    string    `json:"health,omitempty"`
	PID       int       `json:"pid,omitempty"`
	Launched  time.Time `json:"launched"`
	PoweredOn time.Time `json:"powered_on,omitzero"`
	Ended     time.Time `json:"ended,omitzero"`
	// End is why it has ended.
	End string `json:"end,omitempty"`
	// Reached are the phases of its boot, LastWord when its console last said anything.
	Reached  []Reached `json:"reached"`
	LastWord time.Time `json:"last_word,omitzero"`
	// Failures are what stands in its way by its own word.
	Failures []reason.Failure `json:"failures,omitempty"`
	// Timeline is the agent's account of the boot.
	Timeline json.RawMessage `json:"timeline,omitempty"`
	// NodeReady is nil for a machine that is no node.
	NodeReady *bool `json:"node_ready,omitempty"`
}

// Phase is the last that the machine has reached.
func (m MachineStatus) Phase() Phase {
	if len(m.Reached) == 0 {
		return ""
	}
	return m.Reached[len(m.Reached)-1].Phase
}

// Record is one record set of the cluster.
type Record struct {
	Name   string   `json:"name"`
	Type   string   `json:"type"`
	TTL    int64    `json:"ttl"`
	Values []string `json:"values"`
}

// Node is what the API server says of a node.
type Node struct {
	Name  string `json:"name"`
	Ready bool   `json:"ready"`
	// Why is the condition's message where it is not ready.
	Why string `json:"why,omitempty"`
}

// status looks at everything.
func (d *Daemon) status() Status {
	d.board.mu.Lock()
	revision := d.board.revision
	d.board.mu.Unlock()
	s := Status{
		Lab: d.home.Name, Cluster: d.plan.Cluster, Revision: revision, Since: d.since, Image: d.config.Image,
		Records: d.region.records(), Nodes: d.cluster.seen(), API: d.cluster.address(), Outside: d.runner.Outside(),
		Calls: d.region.account.Calls(), Machines: []MachineStatus{},
	}
	instances := map[string]awsfake.Instance{}
	for _, g := range d.plan.Groups {
		now, _ := d.region.account.AutoScaling().Group(g.Scaling) // one that is not made yet wants no machine
		gs := GroupStatus{Name: g.Name, Roles: g.Roles.String(), Desired: now.Desired}
		for _, i := range d.region.account.AutoScaling().Instances(g.Scaling) {
			instances[i.ID] = i
			if i.State == awsfake.StateInService {
				gs.InService++
			}
		}
		s.Groups = append(s.Groups, gs)
	}
	for _, g := range d.host.list() {
		s.Machines = append(s.Machines, g.status(instances[g.id], s.Nodes))
	}
	s.Ready = s.complete()
	return s
}

// complete reports whether the cluster is as its specification says.
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
		ID: g.id, Group: g.group.Name, Roles: g.group.Roles.String(), Address: g.addr, Name: hostName(g.addr), Member: g.group.Member, Volume: g.volume, Image: g.machine.Image,
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
	if strings.Contains(m.Roles, "minions") {
		ready := false
		for _, n := range nodes {
			ready = ready || n.Name == m.Name && n.Ready
		}
		m.NodeReady = &ready
	}
	return m
}

// hostName is the private DNS name that the metadata service tells a machine.
func hostName(addr netip.Addr) string {
	return "ip-" + strings.ReplaceAll(addr.String(), ".", "-") + "." + domain
}

// domain is that of machines' own names, as EC2 has it outside us-east-1.
const domain = regionName + ".compute.internal"

// records are the cluster's sets as they are in the zone, those of control left out.
func (r *region) records() []Record {
	list := []Record{}
	versions, err := r.account.Route53().History(r.zoneID())
	if err != nil || len(versions) == 0 {
		return list // the zone is made before anything can ask
	}
	suffix := "." + r.plan.Cluster + ".k8s."
	for _, s := range versions[len(versions)-1].Sets {
		if !strings.HasSuffix(s.Name, suffix) || strings.HasPrefix(s.Name, "_hardtack.") {
			continue
		}
		list = append(list, Record{Name: s.Name, Type: s.Type, TTL: s.TTL, Values: slices.Clone(s.Values)})
	}
	return list
}

// find is the machine that a person means: by its id or the beginning of it, by its address, or by its group where
// that has one machine that runs.
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

// Names are what Find knows machines by, for a shell's completion.
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
