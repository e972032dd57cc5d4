package etcd

import "time"

// The agent of the simulator: it gathers facts, which may be old, and takes the decided step, which may be cut short,
// be done without an answer, or come late.

func (w *world) seconds(since int) time.Duration { return time.Duration(w.now-since) * time.Second }

// look gathers the facts of a machine.
func (w *world) look(m *simMachine) *Facts {
	f := &w.facts
	*f = Facts{Cluster: "demo", Member: seatNames[m.seat], PeerURL: seatURLs[m.seat], Instance: words.machines[w.number(m)], Storage: w.storage}
	claimed := w.lookAtVolumes(m, f)
	mounted := w.disk(m)
	if mounted != nil {
		f.Disk = Disk{On: mounted.on, UUID: mounted.uuid, Mounted: true, Volume: w.volumeName(m), WAL: mounted.files.id != none}
		if mounted.files.marked {
			w.marker = mounted.files.marker
			f.Disk.Marker = &w.marker
		}
	} else if claimed != nil && len(f.Volumes.Claims) == 1 && f.Volumes.Claims[0].Device != "" {
		f.Disk = Disk{On: claimed.on, UUID: claimed.uuid}
	}
	w.lookAtStore(m, f, claimed)
	f.Disk.Restored = mounted != nil && f.Store.Epoch > 0 && mounted.files.restored == f.Store.Epoch
	if m.attemptEpoch == f.Store.Epoch {
		f.Attempt = m.attempt
	}
	f.Etcd = Process{Running: m.running, Failing: m.running && !m.up, Clients: m.clients, Start: m.start}
	if m.running {
		f.Etcd.Panics = m.panics
	}
	if m.broken != none {
		f.Broken = w.ids[m.broken].id
	}
	w.lookAtMembers(m, f)
	return f
}

func (w *world) lookAtVolumes(m *simMachine, f *Facts) (claimed *simVolume) {
	if w.storage == StorageMachine {
		return nil
	}
	f.Volumes.Known = w.cloudUp && !m.alone || w.storage == StorageDisk
	if !f.Volumes.Known {
		return w.disk(m)
	}
	me, n := w.number(m), 0
	for i := range w.volumes {
		v := &w.volumes[i]
		if !v.exists || v.seat != m.seat || n == len(w.claims) {
			continue
		}
		c := Volume{ID: words.volumes[i], Free: v.holder == none}
		if v.holder != none {
			c.Holder = words.machines[v.holder]
		}
		if v.holder == me && (w.healing || !w.one(4)) {
			c.Device = "/dev/nvme1n1"
		}
		w.claims[n], claimed = c, v
		n++
	}
	f.Volumes.Claims = w.claims[:n]
	if n != 1 {
		return nil
	}
	return claimed
}

func (w *world) lookAtStore(m *simMachine, f *Facts, claimed *simVolume) {
	s := &f.Store
	s.Answers = w.storeUp && !m.alone
	if !s.Answers {
		return
	}
	n := 1
	if f.Disk.Marker != nil {
		n = f.Disk.Marker.Epoch
	}
	if !w.visible(w.epochs[n].beginAt) {
		n = 0
	}
	for n > 0 && n < w.newest && w.visible(w.epochs[n+1].beginAt) {
		n++
	}
	s.Epoch = n
	if n == 0 {
		return
	}
	e := &w.epochs[n]
	s.Begin = &e.begin
	if w.visible(e.startedAt[m.seat]) {
		s.Started = &e.started[m.seat]
	}
	if w.visible(e.outcomeAt) {
		s.Outcome = &e.outcome
	}
	if claimed != nil && w.visible(claimed.madeAt) {
		s.Made = &claimed.made
	}
	if claimed != nil && w.visible(claimed.usedAt) {
		s.Used = &claimed.used
	}
}

// lookAtMembers asks this machine's etcd, or another one, for the list. DNS may lead to the members of another epoch.
func (w *world) lookAtMembers(m *simMachine, f *Facts) {
	if f.Store.Epoch == 0 {
		return
	}
	cluster := w.epochs[f.Store.Epoch].token
	if !w.healing && w.one(16) {
		cluster = w.random.IntN(maxEpochs)
	}
	own := false
	if v := w.disk(m); m.up && v != nil && v.files.id != none {
		own = w.ids[v.files.id].cluster == cluster && w.clusters[cluster].member(v.files.id) != nil
	}
	if !w.quorum(cluster, m.side) || !w.healing && w.one(6) {
		m.reads = none
		return
	}
	if own {
		if m.reads == none {
			m.reads = w.now
		}
		f.Etcd.Reads, f.Etcd.ReadsFor = true, w.seconds(m.reads)
	} else {
		m.reads = none
	}
	c := &w.clusters[cluster]
	for i, member := range c.members[:c.n] {
		w.entries[i] = Member{ID: w.ids[member.id].id, PeerURL: seatURLs[member.seat], Learner: member.learner, Started: member.published}
		if member.named {
			w.entries[i].Name = seatNames[member.seat]
		}
	}
	w.list = List{ClusterID: c.id, Members: w.entries[:c.n]}
	f.List = &w.list
}

// turn is one round of an agent's loop.
func (w *world) turn(m *simMachine) {
	if m.pending.some {
		p := m.pending
		m.pending.some = false
		w.act(m, p)
		return
	}
	f := w.look(m)
	act := w.variant.decide(*f)
	m.last, m.fresh = act.Row, false
	w.seen[act.Row]++
	if act.Do == Wait || act.Do == Stop {
		return
	}
	p := pending{some: true, act: act, epoch: f.Store.Epoch}
	if act.Do == Join {
		p.join = w.variant.join(*w.lookAtCluster(m, f))
		m.lastJoin = p.join
	}
	w.variant.promoting(w, m, f)
	if w.trace != nil && act.Do != Report && (act.Do != Join || p.join.Do != JoinWait) {
		w.log("machine %d, member %s, epoch %d: %s: %s %s %s", w.number(m), f.Member, f.Store.Epoch, act.Row, act.Do, p.join.Do, p.join.ID)
	}
	if p.join.Do == JoinPromote {
		w.checkPromotion(m.side, w.idOf(p.join.ID))
	}
	if !w.healing && act.Do != Rewrite && w.one(12) {
		m.pending = p // it comes late
		return
	}
	w.act(m, p)
}

// lookAtCluster gathers what a replacement needs beyond the facts.
func (w *world) lookAtCluster(m *simMachine, f *Facts) *JoinFacts {
	j := &w.join
	*j = JoinFacts{Facts: *f, Backups: w.storage == StorageVolume, BackupAge: -1}
	if m.backup != none {
		j.BackupAge = w.seconds(m.backup)
	}
	if m.added != none {
		j.Added = w.ids[m.added].id
	}
	cluster := w.epochs[f.Store.Epoch].token
	c := &w.clusters[cluster]
	switch me := w.number(m); {
	case w.now < m.lockUntil:
		j.Lock = LockMine
	case c.exists && c.locked != none && c.locked != me && w.now < c.lockedTo:
		j.Lock = LockOthers
	}
	n := 0
	for i := range c.members[:c.n] {
		member := &c.members[i]
		runs := w.runs(member.id, m.side) != nil
		if member.seat == m.seat {
			if !runs {
				j.Silent = SilentFor
			}
			continue
		}
		if runs && (w.healing || !w.one(6)) {
			w.others[n] = Voter{ID: w.ids[member.id].id, ClusterID: c.id, Leader: 1, LeaderFor: LeaderFor}
			n++
		}
	}
	j.Voters = w.others[:n]
	if v := w.disk(m); m.up && v != nil && v.files.id != none {
		if member := c.member(v.files.id); member != nil {
			if m.target == 0 {
				m.target = uint64(c.index)
			}
			w.own = Own{ID: w.ids[v.files.id].id, Learner: member.learner, Applied: uint64(v.files.has)}
			j.Own, j.Target = &w.own, m.target
		}
	}
	return j
}

// cut reports that the machine ended between two parts of a step.
func (w *world) cut(m *simMachine) bool {
	if w.healing || !w.one(40) {
		return false
	}
	w.reboot(m)
	return true
}

// create creates a record if there is none. It may be created without an answer: the agent then does not go on.
func (w *world) create(m *simMachine, at *int) (made, answered bool) {
	if !w.storeUp || m != nil && m.alone {
		return false, false
	}
	if *at != 0 {
		return false, true
	}
	*at = w.now
	return true, w.healing || !w.one(10)
}

// act takes a step.
func (w *world) act(m *simMachine, p pending) {
	if !m.alive {
		return
	}
	v := w.disk(m)
	switch p.act.Do {
	case Attach, Make, Format, Mount:
		w.actOnVolume(m, p)
	case Discard:
		m.running, m.up = false, false
		if v != nil {
			w.checkDiscard(p.epoch, &v.files)
			v.files.id, v.files.restored, v.files.torn = none, 0, false
		}
	case Fetch:
		if v != nil && !w.cut(m) {
			v.files.restored = p.epoch
		}
	case Claim:
		w.claim(m, p.epoch)
	case First:
		w.first(m, p)
	case Abandon:
		e := &w.epochs[p.epoch]
		if made, _ := w.create(m, &e.outcomeAt); made {
			e.outcome = Outcome{Abandoned: "a machine ended"}
			w.log("epoch %d is abandoned", p.epoch)
		}
	case NextEpoch:
		if w.storeUp && !m.alone {
			w.begin(p.epoch+1, w.epochs[p.epoch].begin, w.epochs[p.epoch].set)
		}
	case Form:
		w.form(m, p.epoch)
	case Run:
		w.setEnvironment(m, p)
		m.running = true
		w.exec(m)
	case Halt:
		m.running, m.up = false, false
		if p.act.Row == S4Broken && v != nil {
			m.broken = v.files.id
		}
	case Rewrite:
		m.start = p.act.Start
	case Reopen:
		w.setEnvironment(m, p)
		m.up = false
		w.exec(m)
	case Join:
		w.actOnCluster(m, p)
	case Report, Wait, Stop:
	}
}

func (w *world) setEnvironment(m *simMachine, p pending) {
	m.broken, m.panics = none, 0
	m.clients, m.start, m.token, m.set = p.act.Clients, p.act.Start, w.epochs[p.epoch].token, w.epochs[p.epoch].set
}

func (w *world) actOnVolume(m *simMachine, p pending) {
	var v *simVolume
	me, number := w.number(m), none
	for i := range w.volumes {
		if c := &w.volumes[i]; c.exists && c.seat == m.seat && (c.holder == none || c.holder == me) {
			v, number = c, i
		}
	}
	if v == nil || p.act.Do != Attach && v.holder != me {
		return
	}
	switch p.act.Do {
	case Attach:
		v.holder = me
	case Make:
		if made, _ := w.create(m, &v.madeAt); made {
			v.made = Made{Member: seatNames[m.seat], UUID: words.uuids[number]}
		}
	case Format:
		if v.madeAt != 0 && !w.cut(m) {
			v.on, v.uuid, v.files = OnExt4, v.made.UUID, files{id: none}
		}
	case Mount:
		m.volume = number
	default:
	}
}

func (w *world) claim(m *simMachine, epoch int) {
	if w.attempts == maxAttempts {
		w.full = true
		return
	}
	e := &w.epochs[epoch]
	m.attempt, m.attemptEpoch = words.attempts[w.attempts], epoch
	w.attempts++
	if made, _ := w.create(m, &e.startedAt[m.seat]); made {
		e.started[m.seat] = Started{Volume: w.volumeName(m), Instance: words.machines[w.number(m)], Attempt: m.attempt}
	}
}

// volumeName is the name by which the facts know the mounted volume.
func (w *world) volumeName(m *simMachine) string {
	if w.storage == StorageMachine || m.volume == none {
		return ""
	}
	return words.volumes[m.volume]
}

func (w *world) first(m *simMachine, p pending) {
	v := w.disk(m)
	e := &w.epochs[p.epoch]
	if v == nil || v.files.id != none || w.cut(m) || !w.use(m, v, p.epoch, ByStart) || w.cut(m) {
		return
	}
	v.files.marked = true
	v.files.marker = Marker{Cluster: "demo", Member: seatNames[m.seat], Epoch: p.epoch, Volume: w.volumeName(m), MemberID: words.members[e.token][m.seat], ClusterID: words.clusters[e.token][e.set]}
	if w.cut(m) {
		return
	}
	m.attempt = ""
	w.setEnvironment(m, p)
	if e.begin.Restore != nil {
		v.files.restored = 0
		m.start = New // the model restores and starts in one: a restored log has the IDs of a new one
	}
	m.running = true
	w.exec(m)
}

// use creates a volume's "used"; that it is there already is fine.
func (w *world) use(m *simMachine, v *simVolume, epoch int, how How) bool {
	if w.storage == StorageMachine {
		return true
	}
	made, answered := w.create(m, &v.usedAt)
	if made {
		v.used = Used{Epoch: epoch, How: how}
	}
	return answered
}

func (w *world) form(m *simMachine, epoch int) {
	e := &w.epochs[epoch]
	if made, _ := w.create(m, &e.outcomeAt); made {
		e.formed = Formed{ClusterID: words.clusters[e.token][e.set], Members: formedAs[e.set]}
		e.outcome = Outcome{Formed: &e.formed}
		w.log("epoch %d is formed", epoch)
	}
}

// actOnCluster takes a step of a replacement.
func (w *world) actOnCluster(m *simMachine, p pending) {
	cluster := w.epochs[p.epoch].token
	c := &w.clusters[cluster]
	switch p.join.Do {
	case JoinLock:
		if w.quorum(cluster, m.side) && (w.now >= c.lockedTo || c.locked == w.number(m)) {
			c.locked, c.lockedTo = w.number(m), w.now+int(LockFor/time.Second)
			m.lockUntil = c.lockedTo
		}
	case JoinBackup:
		m.backup = w.now
	case JoinRemove:
		w.remove(cluster, m.side, w.idOf(p.join.ID))
	case JoinAdd:
		if id, ok := w.addLearner(cluster, m.side, m.seat); ok && (w.healing || !w.one(8)) {
			m.added = id
		}
	case JoinRecord:
		w.record(m, p)
	case JoinStart:
		if v := w.disk(m); v != nil && v.files.id == none {
			m.added, m.target, m.broken, m.panics = none, 0, none, 0
			m.clients, m.start, m.token, m.set = Open, Joining, cluster, w.epochs[p.epoch].set
			m.running = true
			w.exec(m)
		}
	case JoinPromote:
		if !w.healing && w.promotion.at == 0 && w.one(8) {
			w.promotion = latePromotion{w.now + w.random.IntN(60), cluster, m.side, w.idOf(p.join.ID)}
			return
		}
		w.promote(cluster, m.side, w.idOf(p.join.ID))
	case JoinDone, JoinWait, JoinStop:
	}
}

func (w *world) idOf(id ID) int {
	for i := range w.ids[:w.nids] {
		if w.ids[i].id == id {
			return i
		}
	}
	return none
}

func (w *world) record(m *simMachine, p pending) {
	v := w.disk(m)
	if v == nil || !w.use(m, v, p.epoch, ByJoin) || w.cut(m) {
		return
	}
	v.files.marked = true
	v.files.marker = Marker{Cluster: "demo", Member: seatNames[m.seat], Epoch: p.epoch, Volume: w.volumeName(m), MemberID: p.join.ID, ClusterID: w.clusters[w.epochs[p.epoch].token].id}
}
