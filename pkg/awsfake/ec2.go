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
	// Role is the IAM role of its instance profile, UserData the answer of its metadata service; both may be empty.
	Role, UserData            string
	Private, Private6, Public netip.Addr
	Tags                      map[string]string
	Launched, Ended           time.Time
	// Spot is whether it is a spot instance.
	Spot bool
	// Launch is the launch template's data that the machine was launched from; nil if it was launched from none.
	Launch *LaunchData
}

// EC2Options set how machines start. With the zero value they run at once, with a private IPv4 address each, and
// describe calls are up to date.
type EC2Options struct {
	// Lag is the age of the state that describe calls show: EC2's API is eventually consistent.
	Lag time.Duration
	// IPv6 and Public give machines such addresses too.
	IPv6, Public bool
	// Hypervisor runs real machines; IPv6 and Public have no effect then. Nil means that machines exist only in the
	// API.
	Hypervisor Hypervisor
	// Volumes set how long volumes take.
	Volumes VolumeOptions
}

// EC2 is the account's machines and volumes. Several goroutines may call its exported methods, which are not API
// calls: they are not counted, delayed or refused by faults and policies.
type EC2 struct {
	account *Account
	options EC2Options

	order    []string
	machines map[string]*past[Machine]
	volumes  volumes
	hosts    int
	// onChange is called for every change of a machine's state.
	onChange func(Machine)
	launching
}

// launching holds launch templates and networks.
type launching struct {
	templates []*LaunchTemplate
	network   network
	serial    int
}

func newEC2(a *Account, options EC2Options) *EC2 {
	return &EC2{account: a, options: options, machines: map[string]*past[Machine]{}, volumes: newVolumes(), onChange: func(Machine) {}}
}

func (e *EC2) now() time.Time { return e.account.regional.agenda.now }

// Run starts a machine. The caller sets image, type, zone, subnet, role, user data and tags; Run sets the rest. It
// fails if the hypervisor refuses to place the machine.
func (e *EC2) Run(m Machine) (started Machine, err error) {
	e.account.locked(func() { started, err = e.run(m) })
	return started, err
}

func (e *EC2) run(m Machine) (Machine, error) {
	if err := m.Launch.checkShownTags(m.Tags); err != nil {
		return Machine{}, err
	}
	now := e.now()
	m.ID = "i-" + hexID("instance", len(e.order), 17)
	m.State, m.Launched, m.Tags = MachinePending, now, maps.Clone(m.Tags)
	if err := e.place(&m); err != nil {
		return Machine{}, err
	}
	managed := e.options.Hypervisor != nil
	if !managed {
		m.State = MachineRunning
	}
	e.order = append(e.order, m.ID)
	e.machines[m.ID] = &past[Machine]{}
	e.machines[m.ID].put(now, e.options.Lag, m)
	if managed {
		e.notify(m)
	}
	return m, nil
}

// madeUpRange has the addresses of newAddresses.
var madeUpRange = netip.MustParsePrefix("10.0.0.0/16")

// newAddresses returns made-up addresses for a machine that no hypervisor runs.
func (e *EC2) newAddresses() (private, private6, public netip.Addr) {
	e.hosts++
	host := 9 + e.hosts // the first ten of a subnet are not given out
	private = hostAddress(madeUpRange.Addr(), host)
	if e.options.IPv6 {
		private6 = netip.MustParseAddr(fmt.Sprintf("2001:db8::%x:%x", host>>16, host&0xffff))
	}
	if e.options.Public {
		public = hostAddress(netip.MustParseAddr("198.18.0.0"), host) // the benchmark range of RFC 2544
	}
	return private, private6, public
}

func hostAddress(base netip.Addr, host int) netip.Addr {
	b := base.As4()
	return netip.AddrFrom4([4]byte{b[0], b[1] + byte(host>>16), byte(host >> 8), byte(host)})
}

// Machine returns a machine's current state, whatever the lag.
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

// Terminate ends a machine, as its owner or a failure of its host would. It returns false if the machine does not
// exist.
func (e *EC2) Terminate(id string) (ok bool) {
	e.account.locked(func() { ok = e.terminate(id) })
	return ok
}

func (e *EC2) terminate(id string) bool {
	if _, ok := e.machine(id); !ok {
		return false
	}
	to := MachineTerminated
	if e.options.Hypervisor != nil {
		to = MachineShuttingDown
	}
	e.move(id, to, MachinePending, MachineRunning, MachineStopping, MachineStopped)
	return true
}

// move changes a machine's state if that is one of from, and reports whether it did.
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
	e.notify(m)
	return true
}

// release frees the addresses and volumes of a machine that has ended.
func (e *EC2) release(m *Machine, now time.Time) {
	m.Private, m.Private6, m.Public, m.Ended = netip.Addr{}, netip.Addr{}, netip.Addr{}, now
	e.releaseVolumes(m.ID)
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
