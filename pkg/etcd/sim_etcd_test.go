package etcd

// The model of etcd: what its flags make it do, and which IDs make a quorum.

// exec is a start of the process, by the agent or again by systemd, with the environment that was written last.
func (w *world) exec(m *simMachine) {
	v := w.disk(m)
	if v == nil || m.up {
		return
	}
	d := &v.files
	if d.id == none {
		switch m.start {
		case Sealed: // it finds no member to ask
			m.panics = 0
			return
		case New:
			w.execNew(m, d)
		case Joining:
			w.execJoining(m, d)
		}
		if d.id == none {
			return
		}
		m.fresh = true
	}
	if d.torn || w.now < m.shaky {
		m.panics++
		return
	}
	m.panics = 0
	id := &w.ids[d.id]
	w.log("etcd runs on machine %d: member %s of cluster %d with %d of %d", w.number(m), id.id, id.cluster, d.has, id.acked)
	if d.has < id.acked {
		w.fail("member %s runs with %d entries and has acknowledged %d", id.id, d.has, id.acked)
	}
	m.up = true
}

// execNew bootstraps: the ID follows from token and URL. A member that runs and can be asked refuses one that has been
// seen running.
func (w *world) execNew(m *simMachine, d *files) {
	c := &w.clusters[m.token]
	if !c.exists {
		*c = simCluster{exists: true, id: words.clusters[m.token][m.set], locked: none}
		for s := range len(sets[m.set]) {
			c.members[s] = simMember{id: w.newID(words.members[m.token][s], m.token), seat: s, named: true}
			c.n++
		}
	}
	if mine := c.seat(m.seat); mine != nil && mine.published && w.anyUp(m.token, m.side) {
		return
	}
	for i := range w.ids[:w.nids] {
		if w.ids[i].id == words.members[m.token][m.seat] {
			d.id, d.has = i, 0
		}
	}
}

// execJoining takes the ID that the cluster has for this member's URL.
func (w *world) execJoining(m *simMachine, d *files) {
	if !w.anyUp(m.token, m.side) {
		return
	}
	if mine := w.clusters[m.token].seat(m.seat); mine != nil {
		d.id, d.has, d.torn = mine.id, 0, mine.learner && !w.healing && w.one(4)
	}
}

func (w *world) newID(id ID, cluster int) int {
	if w.nids == maxIDs {
		w.full = true
		return 0
	}
	w.ids[w.nids] = simID{id: id, cluster: cluster}
	w.nids++
	return w.nids - 1
}

func (c *simCluster) seat(seat int) *simMember {
	for i := range c.members[:c.n] {
		if c.members[i].seat == seat {
			return &c.members[i]
		}
	}
	return nil
}

func (c *simCluster) member(id int) *simMember {
	for i := range c.members[:c.n] {
		if c.members[i].id == id {
			return &c.members[i]
		}
	}
	return nil
}

// runs returns the files of the process that runs an ID on one side of the partition.
func (w *world) runs(id, side int) *files {
	for i := range w.machines {
		m := &w.machines[i]
		if !m.exists || !m.up || m.side != side {
			continue
		}
		if v := w.disk(m); v != nil && v.files.id == id {
			return &v.files
		}
	}
	return nil
}

func (w *world) anyUp(cluster, side int) bool {
	c := &w.clusters[cluster]
	for i := range c.members[:c.n] {
		if w.runs(c.members[i].id, side) != nil {
			return true
		}
	}
	return false
}

// voters counts the cluster's voters, and those that run on a side.
func (w *world) voters(cluster, side int) (all, up int) {
	c := &w.clusters[cluster]
	for i := range c.members[:c.n] {
		if c.members[i].learner {
			continue
		}
		all++
		if w.runs(c.members[i].id, side) != nil {
			up++
		}
	}
	return all, up
}

func (w *world) quorum(cluster, side int) bool {
	if !w.clusters[cluster].exists {
		return false
	}
	all, up := w.voters(cluster, side)
	return all > 0 && up >= Quorum(all)
}

// commit appends entries to a cluster's log where there is a quorum: all members there acknowledge them. Who runs for the
// first time is published.
func (w *world) commit(cluster, side int) bool {
	if !w.quorum(cluster, side) {
		return false
	}
	c := &w.clusters[cluster]
	c.index++
	for i := range c.members[:c.n] {
		m := &c.members[i]
		d := w.runs(m.id, side)
		if d == nil {
			continue
		}
		id := &w.ids[m.id]
		if d.has < id.acked && m.learner {
			continue // its leader sends what follows the acknowledged, and it panics
		}
		if d.has < id.acked {
			w.fail("voter %s takes part with %d entries and has acknowledged %d", id.id, d.has, id.acked)
		}
		if w.one(8) && !w.healing && w.late(c, i) {
			continue
		}
		d.has, id.acked = c.index, c.index
		if w.healing || !w.one(3) {
			m.published, m.named = true, true
		}
	}
	return true
}

// late lets a member miss an entry that the others commit: learners, which no quorum needs.
func (w *world) late(c *simCluster, i int) bool { return c.members[i].learner }

// write is a client's write to a member, acknowledged if there is a quorum.
func (w *world) write(m *simMachine) {
	v := w.disk(m)
	if !m.up || m.clients != Open || v == nil || v.files.id == none {
		return
	}
	cluster := w.ids[v.files.id].cluster
	c := &w.clusters[cluster]
	member := c.member(v.files.id)
	if member == nil || member.learner || !w.commit(cluster, m.side) {
		return
	}
	w.writes++
	if w.variant.sameToken {
		return // two epochs are one cluster then
	}
	epoch := w.epochOf(cluster)
	e := &w.epochs[epoch]
	if e.outcomeAt == 0 || e.outcome.Formed == nil {
		w.fail("a client's write is acknowledged in epoch %d, which is not formed", epoch)
	}
	if epoch < w.written {
		w.fail("a client's write is acknowledged in epoch %d after one in epoch %d", epoch, w.written)
	}
	w.written = epoch
}

// epochOf is the newest epoch with the cluster's token.
func (w *world) epochOf(cluster int) int {
	for n := w.newest; n > 0; n-- {
		if w.epochs[n].token == cluster {
			return n
		}
	}
	return 0
}

// tick lets etcd and systemd do what they do by themselves.
func (w *world) tick(m *simMachine) {
	switch {
	case m.running && !m.up:
		w.exec(m)
	case m.up:
		v := w.disk(m)
		if v == nil || v.files.id == none {
			m.up = false // I/O errors end it
			return
		}
		cluster := w.ids[v.files.id].cluster
		if w.quorum(cluster, m.side) && w.clusters[cluster].member(v.files.id) == nil {
			w.log("etcd on machine %d ends: it is removed", w.number(m))
			m.up = false
			return
		}
		w.commit(cluster, m.side)
	}
}

// remove is MemberRemove, with the check of strict-reconfig-check.
func (w *world) remove(cluster, side, id int) bool {
	c := &w.clusters[cluster]
	member := c.member(id)
	if !w.quorum(cluster, side) || member == nil {
		return false
	}
	all, up := w.voters(cluster, side)
	if !member.learner {
		if w.runs(id, side) != nil {
			up--
		}
		if up < Quorum(all-1) {
			return false
		}
	}
	w.log("member %s of %s is removed", w.ids[id].id, seatNames[member.seat])
	for i := range c.members[:c.n] {
		if c.members[i].id == id {
			c.members[i] = c.members[c.n-1]
			c.n--
			break
		}
	}
	return w.commit(cluster, side)
}

// addLearner is MemberAddAsLearner.
func (w *world) addLearner(cluster, side, seat int) (id int, ok bool) {
	c := &w.clusters[cluster]
	if !w.quorum(cluster, side) || c.seat(seat) != nil || c.n == len(c.members) {
		return none, false
	}
	for i := range c.members[:c.n] {
		if c.members[i].learner {
			return none, false
		}
	}
	if all, up := w.voters(cluster, side); up < Quorum(all+1) && all > 1 {
		return none, false
	}
	id = w.newID(ID(0x1000+w.nids), cluster)
	c.members[c.n] = simMember{id: id, seat: seat, learner: true}
	c.n++
	w.log("learner %s of %s is added", w.ids[id].id, seatNames[seat])
	return id, w.commit(cluster, side)
}

// promote is MemberPromote: the leader looks at what the learner has acknowledged, not at what it has.
func (w *world) promote(cluster, side, id int) {
	c := &w.clusters[cluster]
	member := c.member(id)
	if !w.quorum(cluster, side) || member == nil || !member.learner || w.ids[id].acked*10 < c.index*9 {
		return
	}
	w.log("learner %s of %s is promoted", w.ids[id].id, seatNames[member.seat])
	member.learner, member.before = false, w.ids[id].acked
	w.commit(cluster, side)
}

// checkDiscard looks at data that are to be moved away: a voter of a cluster that goes on has acknowledged nothing with them.
func (w *world) checkDiscard(epoch int, d *files) {
	if d.id == none || !d.marked || d.marker.Epoch < epoch {
		return // of an epoch that has ended
	}
	id := &w.ids[d.id]
	if member := w.clusters[id.cluster].member(d.id); member != nil && !member.learner && id.acked > member.before {
		w.fail("the data of voter %s are discarded, with which it has acknowledged %d entries", id.id, id.acked-member.before)
	}
}

// checkPromotion looks at a learner when its promotion is decided.
func (w *world) checkPromotion(side, id int) {
	if d := w.runs(id, side); d == nil || d.has < w.ids[id].acked {
		w.fail("learner %s is to be promoted, and does not run with what it has acknowledged", w.ids[id].id)
	}
}
