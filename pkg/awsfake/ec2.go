package awsfake

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"
)

// The states of an EC2 instance, with the codes of the API reference (InstanceState).
const (
	MachinePending      = "pending"
	MachineRunning      = "running"
	MachineShuttingDown = "shutting-down"
	MachineTerminated   = "terminated"
	MachineStopping     = "stopping"
	MachineStopped      = "stopped"
)

// Machine is an EC2 instance. A terminated one has no address and is described for another hour.
type Machine struct {
	ID, State, Image, Type, Zone, Subnet string
	// Role is the IAM role of its instance profile, UserData what its metadata service answers; both may be empty.
	Role, UserData            string
	Private, Private6, Public netip.Addr
	Tags                      map[string]string
	Launched, Ended           time.Time
	// Impaired machines fail their status checks.
	Impaired bool
	// Launch is what the launch template said that the machine was launched from; nil where it was none.
	Launch *LaunchData
}

// Volume is an EBS volume; Instance is empty while it is attached to none.
type Volume struct {
	ID, Zone, Instance, Device string
	Size                       int
	Created, Attached          time.Time
	Tags                       map[string]string
}

// EC2Options sets how machines come to be. The zero value makes them run at once, with a private IPv4
// address each, and describes them as they are.
type EC2Options struct {
	// Lag is how long ago the state was that describe calls show: EC2's API is eventually consistent.
	Lag time.Duration
	// Boot is the time from pending to running, Halt from shutting-down to terminated.
	Boot, Halt time.Duration
	// IPv6 and Public give machines those addresses too.
	IPv6, Public bool
	// Reuse gives the addresses of ended machines to new ones, the oldest first, as a subnet that is
	// nearly full does.
	Reuse bool
	// Hypervisor runs the machines in earnest; Boot, Halt, IPv6, Public and Reuse have no effect then.
	Hypervisor Hypervisor
}

// EC2 is the account's machines and volumes. Its exported methods may be called by several goroutines;
// they are no API calls: nothing counts, delays or refuses them.
type EC2 struct {
	account *Account
	options EC2Options

	order    []string
	machines map[string]*past[Machine]
	volumes  map[string]*past[Volume]
	disks    []string
	free     []int
	hosts    int
	// changed is told of every change of a machine's state.
	changed func(Machine)
	launching
}

// launching is what machines are launched from and into.
type launching struct {
	templates []*LaunchTemplate
	network   network
	serial    int
	// tokens are the answers to calls with a client token.
	tokens map[string]tokenAnswer
}

func newEC2(a *Account, options EC2Options) *EC2 {
	return &EC2{account: a, options: options, machines: map[string]*past[Machine]{}, volumes: map[string]*past[Volume]{}, changed: func(Machine) {}}
}

func (e *EC2) now() time.Time { return e.account.regional.agenda.now }

func (e *EC2) after(d time.Duration, f func()) { e.account.regional.agenda.after(d, f) }

// Run starts a machine; image, type, zone, subnet, role, user data and tags are the caller's, the rest is filled
// in. It is refused where the hypervisor has no place for it.
func (e *EC2) Run(m Machine) (started Machine, err error) {
	e.account.locked(func() { started, err = e.run(m) })
	return started, err
}

func (e *EC2) run(m Machine) (Machine, error) {
	now := e.now()
	m.ID = "i-" + hexID("instance", len(e.order), 17)
	m.State, m.Launched, m.Tags = MachinePending, now, maps.Clone(m.Tags)
	if err := e.place(&m); err != nil {
		return Machine{}, err
	}
	managed := e.options.Hypervisor != nil
	if e.options.Boot == 0 && !managed {
		m.State = MachineRunning
	}
	e.order = append(e.order, m.ID)
	e.machines[m.ID] = &past[Machine]{}
	e.machines[m.ID].put(now, e.options.Lag, m)
	switch {
	case managed:
		e.tell(m)
	case e.options.Boot > 0:
		e.after(e.options.Boot, func() { e.move(m.ID, MachineRunning, MachinePending) })
	}
	return m, nil
}

// invent makes up addresses for a machine that nobody runs.
func (e *EC2) invent() (private, private6, public netip.Addr) {
	host := e.host()
	private = hostAddress(netip.MustParseAddr("10.0.0.0"), host)
	if e.options.IPv6 {
		private6 = netip.MustParseAddr(fmt.Sprintf("2001:db8::%x:%x", host>>16, host&0xffff))
	}
	if e.options.Public {
		public = hostAddress(netip.MustParseAddr("198.18.0.0"), host) // the benchmark range of RFC 2544
	}
	return private, private6, public
}

// host takes a free host number; the first ten of a subnet are not given out.
func (e *EC2) host() int {
	if e.options.Reuse && len(e.free) > 0 {
		host := e.free[0]
		e.free = e.free[1:]
		return host
	}
	e.hosts++
	return 9 + e.hosts
}

func hostAddress(base netip.Addr, host int) netip.Addr {
	b := base.As4()
	return netip.AddrFrom4([4]byte{b[0], b[1] + byte(host>>16), byte(host >> 8), byte(host)})
}

// Machine returns a machine as it is, whatever the lag.
func (e *EC2) Machine(id string) (m Machine, ok bool) {
	e.account.locked(func() { m, ok = e.machine(id) })
	return m, ok
}

func (e *EC2) machine(id string) (Machine, bool) {
	m, ok := e.machines[id]
	if !ok {
		return Machine{}, false
	}
	return m.last(), true
}

// Terminate ends a machine, as its owner or as a failure of its host would. False: there is none.
func (e *EC2) Terminate(id string) (ok bool) {
	e.account.locked(func() { ok = e.terminate(id) })
	return ok
}

func (e *EC2) terminate(id string) bool {
	if _, ok := e.machine(id); !ok {
		return false
	}
	if e.options.Hypervisor != nil {
		e.move(id, MachineShuttingDown, MachinePending, MachineRunning, MachineStopping, MachineStopped)
		return true
	}
	if e.options.Halt == 0 {
		e.move(id, MachineTerminated, MachinePending, MachineRunning, MachineStopping, MachineStopped)
		return true
	}
	if e.move(id, MachineShuttingDown, MachinePending, MachineRunning, MachineStopping, MachineStopped) {
		e.after(e.options.Halt, func() { e.move(id, MachineTerminated, MachineShuttingDown) })
	}
	return true
}

// Stop halts a machine; it keeps its private address. Start brings it back.
func (e *EC2) Stop(id string) (ok bool) {
	e.account.locked(func() { ok = e.stop(id) })
	return ok
}

// Start runs a stopped machine again.
func (e *EC2) Start(id string) (ok bool) {
	e.account.locked(func() { ok = e.start(id) })
	return ok
}

// move changes a machine's state where it is one of from, and reports whether it did.
func (e *EC2) move(id, to string, from ...string) bool {
	history, ok := e.machines[id]
	if !ok || !slices.Contains(from, history.last().State) {
		return false
	}
	m := history.last()
	m.State = to
	now := e.now()
	if to == MachineTerminated {
		e.release(&m, now)
	}
	history.put(now, e.options.Lag, m)
	e.tell(m)
	return true
}

// release takes the addresses and volumes of a machine that has ended.
func (e *EC2) release(m *Machine, now time.Time) {
	if e.options.Hypervisor == nil {
		b := m.Private.As4()
		e.free = append(e.free, int(b[1])<<16|int(b[2])<<8|int(b[3]))
	}
	m.Private, m.Private6, m.Public, m.Ended = netip.Addr{}, netip.Addr{}, netip.Addr{}, now
	for _, history := range e.volumes {
		if v := history.last(); v.Instance == m.ID {
			v.Instance, v.Device = "", ""
			history.put(now, e.options.Lag, v)
			e.tellVolume(v)
		}
	}
}

// visible lists the machines that a describe call sees now, in the order of their launch.
func (e *EC2) visible() []Machine {
	now := e.now()
	var list []Machine
	for _, id := range e.order {
		m, ok := e.machines[id].at(now.Add(-e.options.Lag))
		if !ok || m.State == MachineTerminated && now.Sub(m.Ended) > time.Hour {
			continue
		}
		list = append(list, m)
	}
	return list
}

// tag sets (or, where value is nil, removes) a tag of a machine or volume.
func (e *EC2) tag(id, key string, value *string) bool {
	now := e.now()
	change := func(tags map[string]string) map[string]string {
		tags = maps.Clone(tags)
		if tags == nil {
			tags = map[string]string{}
		}
		if delete(tags, key); value != nil {
			tags[key] = *value
		}
		return tags
	}
	if history, ok := e.machines[id]; ok {
		m := history.last()
		m.Tags = change(m.Tags)
		history.put(now, e.options.Lag, m)
		return true
	}
	if history, ok := e.volumes[id]; ok {
		v := history.last()
		v.Tags = change(v.Tags)
		history.put(now, e.options.Lag, v)
		return true
	}
	return false
}
