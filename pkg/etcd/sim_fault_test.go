package etcd

// The faults of the simulator, the operator, and the end of a schedule.

// step is one event of a schedule.
func (w *world) step() {
	w.now += 1 + w.random.IntN(6)
	if w.one(64) {
		w.now += 700 // past every wait
	}
	w.collect()
	if l := w.promotion; l.at != 0 && w.now >= l.at {
		w.promotion = latePromotion{}
		w.promote(l.cluster, l.side, l.id)
	}
	m := &w.machines[w.random.IntN(maxMachines)]
	for range 3 {
		if m.exists && m.alive {
			break
		}
		m = &w.machines[w.random.IntN(maxMachines)]
	}
	if !m.exists || !m.alive {
		return
	}
	switch n := w.random.IntN(100); {
	case n < w.rate:
		w.fault(m)
	case n < 60:
		w.turn(m)
	case n < 80:
		w.tick(m)
	default:
		w.write(m)
	}
}

func (w *world) fault(m *simMachine) {
	switch w.random.IntN(10) {
	case 0, 1, 2, 3:
		w.machineFault(m)
	case 4, 5:
		w.diskFault(m)
	default:
		w.outsideFault(m)
	}
}

func (w *world) machineFault(m *simMachine) {
	switch w.random.IntN(7) {
	case 6:
		w.log("etcd on machine %d panics for a while", w.number(m))
		m.up, m.shaky = false, w.now+w.random.IntN(200)
	case 0:
		if m.up {
			w.log("etcd on machine %d is killed", w.number(m))
		}
		m.up = false
	case 1, 2:
		w.reboot(m)
	case 3: // replaced; the new one comes when it comes
		w.end(m)
	case 4:
		if w.now > w.offUntil {
			if old := w.of(m.seat); w.storage == StorageVolume || w.storage == StorageMachine && w.newest == 1 && w.one(2) {
				w.doubled = w.doubled || old != nil
				w.boot(m.seat)
			}
		}
	case 5:
		w.missing()
	}
}

// missing starts machines for seats that have none.
func (w *world) missing() {
	if w.now <= w.offUntil {
		return
	}
	for seat := range maxSeats {
		if w.of(seat) == nil {
			w.boot(seat)
		}
	}
}

func (w *world) diskFault(m *simMachine) {
	v := w.disk(m)
	if v == nil {
		for i := range w.volumes {
			if c := &w.volumes[i]; c.exists && c.seat == m.seat && c.holder == none {
				v = c
			}
		}
	}
	if v == nil || m.fresh {
		return // a second after its first start nobody empties a disk: the agent looks at once, and seals
	}
	m.up = m.up && v.holder != w.number(m)
	switch w.random.IntN(10) {
	case 9:
		w.log("the data of %s are torn", seatNames[m.seat])
		v.files.torn = v.files.id != none
	case 0:
		w.log("the data of %s are removed", seatNames[m.seat])
		v.files.id, v.files.torn = none, false
	case 1:
		w.log("everything in the file system of %s is removed", seatNames[m.seat])
		v.files = files{id: none}
	case 2, 3:
		w.log("the volume of %s is blank", seatNames[m.seat])
		v.files = files{id: none}
		if w.storage != StorageMachine {
			v.on, v.uuid = [...]On{OnBlank, OnScraps, OnOther}[w.random.IntN(3)], ""
			w.unmount(m)
		}
	case 4, 8:
		w.clone(m, v)
	case 5:
		w.swap(m, v)
	case 6:
		w.log("the marker of %s is removed", seatNames[m.seat])
		v.files.marked = false
	case 7:
		if w.storage == StorageVolume {
			w.log("the volume of %s is deleted", seatNames[m.seat])
			v.exists = false
			w.unmount(m)
		}
	}
}

func (w *world) unmount(m *simMachine) {
	m.up = false
	if w.storage != StorageMachine {
		m.volume = none
	}
}

// clone makes another volume with this content and these tags: of an older state, if etcd goes on.
func (w *world) clone(m *simMachine, v *simVolume) {
	if w.storage != StorageVolume {
		return
	}
	for i := range w.volumes {
		if c := &w.volumes[i]; c.exists && c.seat == v.seat && c != v {
			w.log("the volume of %s is deleted: its copy takes its place", seatNames[m.seat])
			v.exists = false
			w.unmount(m)
			return
		}
	}
	for i := range w.volumes {
		if c := &w.volumes[i]; !c.exists {
			*c = simVolume{exists: true, seat: v.seat, holder: none, on: v.on, uuid: v.uuid, files: v.files}
			w.log("volume %d is a copy of that of %s", i, seatNames[m.seat])
			return
		}
	}
}

// swap exchanges the tags of two volumes.
func (w *world) swap(m *simMachine, v *simVolume) {
	if w.storage != StorageVolume {
		return
	}
	for i := range w.volumes {
		if c := &w.volumes[i]; c.exists && c.seat != v.seat {
			w.log("the volumes of %s and %s change their tags", seatNames[v.seat], seatNames[c.seat])
			c.seat, v.seat = v.seat, c.seat
			return
		}
	}
}

func (w *world) outsideFault(m *simMachine) {
	switch w.random.IntN(8) {
	case 7:
		m.alone = !m.alone
	case 0:
		m.side = 1 - m.side
	case 1:
		for i := range w.machines {
			w.machines[i].side = 0
		}
	case 2:
		w.storeUp = !w.storeUp
	case 3:
		w.cloudUp = !w.cloudUp
	case 4:
		w.storeUp, w.cloudUp = true, true
	case 5:
		w.replace(m.seat)
	case 6:
		if w.one(2) {
			w.zones(m.seat)
		}
		w.restore(w.one(2))
	}
}

// zones cuts all machines but those of one seat off from the rest and from the cloud, with each other.
func (w *world) zones(but int) {
	w.log("all but %s are cut off", seatNames[but])
	for i := range w.machines {
		m := &w.machines[i]
		m.side, m.alone = 0, false
		if m.seat != but {
			m.side, m.alone = 1, true
		}
	}
}

// replace is the operator's: the old volumes go, with the machines that hold them, and a new one comes.
func (w *world) replace(seat int) {
	if w.storage == StorageMachine {
		return
	}
	for i := range w.machines {
		if m := &w.machines[i]; m.exists && m.alive && m.seat == seat {
			w.end(m)
		}
	}
	for i := range w.volumes {
		v := &w.volumes[i]
		if !v.exists || v.seat != seat {
			continue
		}
		if v.holder != none && w.machines[v.holder].alive {
			return // refused: attached to a machine that has not ended
		}
		w.log("volume %d of %s is deleted by the operator", i, seatNames[seat])
		v.exists = false
	}
	w.makeVolume(seat)
	if w.now > w.offUntil {
		w.boot(seat)
	}
}

// restore is the operator's: a new epoch, of all members or of one, with seats declared off only if no machine lives.
func (w *world) restore(all bool) {
	n := w.newest
	e := &w.epochs[n]
	if w.storage == StorageMachine && w.doubled {
		return // nothing but the operator tells two machines of a seat apart
	}
	if made, _ := w.create(nil, &e.outcomeAt); made {
		e.outcome = Outcome{Abandoned: "the operator restores"}
	}
	if e.outcomeAt == 0 {
		return
	}
	b := Begin{Restore: &Restore{Object: "backup"}}
	if w.one(3) {
		b.Restore = nil
	}
	b.Previous = e.begin.Previous
	if e.outcome.Formed != nil {
		b.Previous = nil
		c := &w.clusters[e.token]
		for i := range c.members[:c.n] {
			if !c.members[i].learner {
				b.Previous = append(b.Previous, seatNames[c.members[i].seat])
			}
		}
	}
	set := 1
	if !all {
		set = 0
		for seat := 1; seat < maxSeats; seat++ {
			if w.of(seat) == nil {
				b.Off = append(b.Off, seatNames[seat])
				w.stale, w.offUntil = 60, w.now+61
			}
		}
	}
	b.Members = sets[set]
	w.begin(n+1, b, set)
}

// heal ends all faults; then, with an operator who does what the rows say, every seat must become a voter.
func (w *world) heal() {
	w.log("all faults end")
	w.healing, w.storeUp, w.cloudUp = true, true, true
	w.now = max(w.now, w.offUntil) + 1000
	for i := range w.machines {
		m := &w.machines[i]
		m.side, m.alone, m.shaky = 0, false, 0
		if m.exists && m.alive && w.of(m.seat) != m {
			w.end(m)
		}
	}
	w.now += 100
	w.collect()
	w.missing()
	for round := range 240 {
		if w.settled() || w.full || w.wrong != "" {
			return
		}
		w.now += 20
		w.collect()
		for i := range w.machines {
			if m := &w.machines[i]; m.exists && m.alive {
				w.tick(m)
				w.turn(m)
				w.write(m)
			}
		}
		switch {
		case round%20 == 15:
			w.operate()
		case round == 100 || round == 180:
			w.now += 1000
			w.doubled = false
			w.restore(true)
		}
	}
	if !w.full {
		w.stuck = true
		w.fail("after all faults it does not settle: %s", w.rows())
	}
}

// operate does what the rows ask people to do.
func (w *world) operate() {
	for seat := range maxSeats {
		m := w.of(seat)
		if m == nil {
			w.boot(seat)
			continue
		}
		w.log("the operator sees %s in %s", seatNames[seat], m.last)
		row := m.last
		if v := w.disk(m); v != nil && v.files.torn && row == SRuns {
			row = F3Lost // a voter's: nobody but a person gives its data up
		}
		switch row {
		case V4Held:
			w.endHolder(seat)
		case V1None, V2Many, F0Unread, F3Lost, F5Foreign, E5Unmarked, E6Other:
			if w.storage == StorageMachine {
				w.end(m)
			} else if !w.endHolder(seat) {
				w.replace(seat)
			}
		default:
		}
	}
}

// endHolder ends the machine of another seat that has this seat's volume: somebody has changed its tags.
func (w *world) endHolder(seat int) (ended bool) {
	for i := range w.volumes {
		if v := &w.volumes[i]; v.exists && v.seat == seat && v.holder != none && w.machines[v.holder].alive && w.machines[v.holder].seat != seat {
			w.end(&w.machines[v.holder])
			ended = true
		}
	}
	return ended
}

// settled reports whether every seat runs as an open voter of the newest epoch.
func (w *world) settled() bool {
	e := &w.epochs[w.newest]
	c := &w.clusters[e.token]
	if e.outcomeAt == 0 || e.outcome.Formed == nil || c.n != maxSeats {
		return false
	}
	for seat := range maxSeats {
		m, member := w.of(seat), c.seat(seat)
		if m == nil || member == nil || member.learner || !m.up || m.clients != Open || m.last != SRuns || w.runs(member.id, 0) == nil {
			return false
		}
	}
	return true
}

func (w *world) rows() string {
	text := ""
	for seat := range maxSeats {
		if m := w.of(seat); m != nil {
			text += seatNames[seat] + " in " + m.last.String() + " " + m.lastJoin.Do.String() + " " + hindrances[m.lastJoin.Why].cause + "; "
		}
	}
	return text
}
