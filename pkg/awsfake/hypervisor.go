package awsfake

import "net/netip"

// Hypervisor runs the account's machines in earnest, as the lab's daemon does with virtual ones. With one
// (EC2Options.Hypervisor), a machine is pending until EC2.Started, and shutting down until EC2.Ended: its word
// takes the place of EC2Options.Boot and Halt. Groups wait for it: a launched instance runs its hooks once its
// machine has started, and one that never starts is a failed launch, tried again after a minute.
//
//	pending       → start it, then say Started (or Ended, where it cannot be started)
//	stopping      → halt it, then say Stopped
//	shutting-down → end it, then say Ended
//	running, stopped, terminated → these are the hypervisor's own words, or the account's about what it said
//
// It also speaks unasked: Ended for a machine that died, Stopped for one that switched itself off, SetImpaired
// for one that hangs. A group replaces all three once it has noticed (AutoScalingOptions.HealthCheck).
// Account.Run, or a Tick after each step of a virtual clock, is what makes the calls below.
type Hypervisor interface {
	// Place gives a machine that is about to be launched its addresses. An error refuses the launch. It is called
	// with the account locked, so it must not call the account and must not wait.
	Place(m Machine) (Addresses, error)
	// MachineChanged is told of every change of a machine's state, in order and without any lock, by Tick. It may
	// call the account; while it runs, nobody else is told anything.
	MachineChanged(m Machine)
	// VolumeChanged is told, in the same way, that a volume was attached to or taken from a machine.
	VolumeChanged(v Volume)
}

// Addresses are a machine's; an invalid one is none. Private must be valid.
type Addresses struct{ Private, Private6, Public netip.Addr }

// The outcome of a machine's status checks (API reference, InstanceStatusSummary).
const (
	statusOK           = "ok"
	statusImpaired     = "impaired"
	statusInitializing = "initializing"
	statusNone         = "not-applicable"
)

// Started is the hypervisor's word that a pending machine runs. False: it is not pending, and should not run.
func (e *EC2) Started(id string) (ok bool) {
	e.account.locked(func() { ok = e.move(id, MachineRunning, MachinePending) })
	return ok
}

// Stopped is the hypervisor's word that a machine is switched off, by itself or as it was asked to. It keeps its
// private address.
func (e *EC2) Stopped(id string) (ok bool) {
	e.account.locked(func() { ok = e.move(id, MachineStopped, MachinePending, MachineRunning, MachineStopping) })
	return ok
}

// Ended is the hypervisor's word that a machine is no more, because it was asked to end it or because it died.
// Its addresses are free from now on and its volumes detached.
func (e *EC2) Ended(id string) (ok bool) {
	e.account.locked(func() {
		ok = e.move(id, MachineTerminated, MachinePending, MachineRunning, MachineStopping, MachineStopped, MachineShuttingDown)
	})
	return ok
}

// SetImpaired sets whether a machine fails its status checks, as one that hangs does. Its group takes it for
// unhealthy as long as it does.
func (e *EC2) SetImpaired(id string, impaired bool) (ok bool) {
	e.account.locked(func() {
		history, found := e.machines[id]
		if ok = found; !found {
			return
		}
		m := history.last()
		m.Impaired = impaired
		history.put(e.now(), e.options.Lag, m)
		if impaired {
			e.changed(m)
		}
	})
	return ok
}

// place fills in a new machine's addresses.
func (e *EC2) place(m *Machine) error {
	if e.options.Hypervisor != nil {
		at, err := e.options.Hypervisor.Place(*m)
		if err != nil {
			return refuse("InsufficientInstanceCapacity", "%v", err)
		}
		m.Private, m.Private6, m.Public = at.Private, at.Private6, at.Public
		return nil
	}
	m.Private, m.Private6, m.Public = e.invent()
	return nil
}

// tell passes a machine's new state to the hypervisor, and to whoever must know at once.
func (e *EC2) tell(m Machine) {
	if h := e.options.Hypervisor; h != nil {
		e.account.regional.later(func() { h.MachineChanged(m) })
	}
	e.changed(m)
}

func (e *EC2) tellVolume(v Volume) {
	if h := e.options.Hypervisor; h != nil {
		e.account.regional.later(func() { h.VolumeChanged(v) })
	}
}

// stop and start ask for what a hypervisor then does; without one it is done.
func (e *EC2) stop(id string) bool {
	if e.options.Hypervisor != nil {
		return e.move(id, MachineStopping, MachinePending, MachineRunning)
	}
	return e.move(id, MachineStopped, MachinePending, MachineRunning)
}

func (e *EC2) start(id string) bool {
	if e.options.Hypervisor != nil {
		return e.move(id, MachinePending, MachineStopped)
	}
	return e.move(id, MachineRunning, MachineStopped)
}
