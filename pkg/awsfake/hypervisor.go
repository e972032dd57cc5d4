package awsfake

import "net/netip"

// Hypervisor runs the account's machines, as the lab's daemon does with virtual ones. With a hypervisor
// (EC2Options.Hypervisor) a machine stays pending until EC2.Started and shutting down until EC2.Ended is called. Groups
// wait for it: a launched instance runs its hooks once its machine has started. A machine that never starts is a failed
// launch, which the group tries again after a minute.
//
//	pending             start it, then call Started (or Ended, if it cannot be started)
//	shutting-down       end it, then call Ended
//	running, terminated nothing to do: these follow from Started and Ended
//
// Volumes are the same: a volume stays attaching until EC2.Attached, and detaching (busy, after VolumeOptions.Detach)
// until EC2.Detached is called or its machine ends.
//
// If a machine dies, the hypervisor calls Ended. Its group replaces it after AutoScalingOptions.HealthCheck.
//
// Account.Run calls the methods below; with a virtual clock, Account.Tick does, after each step of the clock.
type Hypervisor interface {
	// Place returns the addresses of a machine that is about to be launched. An error refuses the launch. Place is
	// called with the account locked, so it must not call the account and must not wait.
	Place(m Machine) (Addresses, error)
	// MachineChanged is called for every change of a machine's state, in order. It may call the account. No other
	// change is reported until it returns.
	MachineChanged(m Machine)
	// VolumeChanged is called, in the same way, for every change of a volume, from its creation to its deletion.
	VolumeChanged(v Volume)
}

// Addresses are a machine's. Private must be valid; an invalid Private6 or Public means that the machine has none.
type Addresses struct{ Private, Private6, Public netip.Addr }

// Started reports that a pending machine runs. It returns false if the machine is not pending; it should not run then.
func (e *EC2) Started(id string) (ok bool) {
	e.account.locked(func() { ok = e.move(id, MachineRunning, MachinePending) })
	return ok
}

// Ended reports that a machine has ended, on request or because it died. Its addresses are free from now on and its
// volumes detached. It returns false if the machine had ended before or does not exist.
func (e *EC2) Ended(id string) (ok bool) {
	e.account.locked(func() {
		ok = e.move(id, MachineTerminated, MachinePending, MachineRunning, MachineStopping, MachineStopped, MachineShuttingDown)
	})
	return ok
}

// Attached reports that a machine has a volume. It returns false if the volume is not attaching to that machine.
func (e *EC2) Attached(volume, instance string) (ok bool) {
	e.account.locked(func() {
		v, _ := e.volume(volume)
		ok = v.Attachment.Instance == instance && e.attached(volume, v.Attachment.Since)
	})
	return ok
}

// Detached reports that a machine has given a volume back that was detached, or has unmounted it. It returns false if
// the volume is not being detached from that machine.
func (e *EC2) Detached(volume, instance string) (ok bool) {
	e.account.locked(func() {
		v, _ := e.volume(volume)
		at := v.Attachment
		if ok = at.Instance == instance && (at.State == Detaching || at.State == AttachmentBusy); ok {
			e.free(volume)
		}
	})
	return ok
}

// place sets a new machine's addresses.
func (e *EC2) place(m *Machine) error {
	if e.options.Hypervisor != nil {
		at, err := e.options.Hypervisor.Place(*m)
		if err != nil {
			return refuse("InsufficientInstanceCapacity", "%v", err)
		}
		m.Private, m.Private6, m.Public = at.Private, at.Private6, at.Public
		return nil
	}
	m.Private, m.Private6, m.Public = e.newAddresses()
	return nil
}

// notify passes a machine's new state to the hypervisor, and to AutoScaling at once.
func (e *EC2) notify(m Machine) {
	if h := e.options.Hypervisor; h != nil {
		e.account.regional.later(func() { h.MachineChanged(m) })
	}
	e.onChange(m)
}

func (e *EC2) notifyVolume(v Volume) {
	if h := e.options.Hypervisor; h != nil {
		e.account.regional.later(func() { h.VolumeChanged(v) })
	}
}
