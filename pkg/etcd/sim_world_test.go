package etcd

import (
	"fmt"
	"math/rand/v2"
)

// The simulator's world: machines with the agent's loop, volumes, the store, and a model of etcd in which every member ID
// remembers what it has acknowledged. Nothing is allocated while a schedule runs: one world serves many.

const (
	maxSeats    = 3
	maxMachines = 12
	maxVolumes  = 24
	maxEpochs   = 16
	maxIDs      = 96
	maxAttempts = 256
	none        = -1
)

// The fixed names, made once: a schedule uses them by their index.
var (
	seatNames = [maxSeats]string{"a", "b", "c"}
	seatURLs  = [maxSeats]string{"https://a:2380", "https://b:2380", "https://c:2380"}
	sets      = [2][]Peer{{{"a", seatURLs[0]}}, {{"a", seatURLs[0]}, {"b", seatURLs[1]}, {"c", seatURLs[2]}}}
	formedAs  [2]map[string]ID
	words     = struct {
		tokens   [maxEpochs]string
		attempts [maxAttempts]string
		machines [maxMachines]string
		volumes  [maxVolumes]string
		uuids    [maxVolumes]string
		members  [maxEpochs][maxSeats]ID
		clusters [maxEpochs][2]ID
	}{}
)

func makeWords() {
	for i := range words.tokens {
		words.tokens[i] = fmt.Sprintf("token-%d", i)
		for s := range seatURLs {
			words.members[i][s] = MemberID(words.tokens[i], seatURLs[s])
		}
		for n, set := range sets {
			words.clusters[i][n] = ClusterID(words.tokens[i], set)
		}
	}
	for i := range words.attempts {
		words.attempts[i] = fmt.Sprintf("attempt-%d", i)
	}
	for i := range words.machines {
		words.machines[i] = fmt.Sprintf("i-%d", i)
	}
	for i := range words.volumes {
		words.volumes[i], words.uuids[i] = fmt.Sprintf("vol-%d", i), fmt.Sprintf("uuid-%d", i)
	}
	for n, set := range sets {
		formedAs[n] = map[string]ID{}
		for _, p := range set {
			formedAs[n][p.Name] = MemberID(words.tokens[0], p.URL)
		}
	}
}

// files is what is on a file system.
type files struct {
	id       int // index of the member ID whose log is there; none without a log
	has      int // how much of its cluster's log
	marked   bool
	marker   Marker
	restored int  // the epoch whose backup is in RestoreDir; 0 is none
	torn     bool // etcd panics on the log, whenever it starts
}

type simVolume struct {
	exists bool
	seat   int // its tag
	holder int // machine
	on     On
	uuid   string
	files  files
	madeAt int // when the record was created; 0 is never
	made   Made
	usedAt int
	used   Used
}

type simMachine struct {
	alive, exists bool
	freed         int // when a dead machine's volume becomes free
	seat          int
	volume        int  // the one mounted; none
	side          int  // of a partition
	alone         bool // it does not reach the store and the cloud
	// The agent's memory.
	attempt      string
	attemptEpoch int
	added        int
	lockUntil    int
	target       uint64
	backup       int
	broken       int // index of the member ID whose etcd it has halted; none
	pending      pending
	last         Row
	lastJoin     JoinAction
	// etcd: running is the service, up the process.
	running, up bool
	clients     Clients
	fresh       bool // it began with an empty log, and the agent has not looked since
	start       Start
	token, set  int // of its environment
	reads       int // since when its reads work; none
	panics      int // in a row
	shaky       int // until when etcd panics whatever it has
}

// pending is a step that the agent decided on and has not taken yet.
type pending struct {
	some  bool
	act   Action
	join  JoinAction
	epoch int
}

type simEpoch struct {
	beginAt   int
	begin     Begin
	set       int
	token     int
	startedAt [maxSeats]int
	started   [maxSeats]Started
	outcomeAt int
	outcome   Outcome
	formed    Formed
}

// simCluster is what has one token.
type simCluster struct {
	exists   bool
	id       ID
	members  [8]simMember
	n        int
	index    int // of its log
	locked   int // machine that holds the lock
	lockedTo int
}

type simMember struct {
	id, seat           int
	learner, published bool
	named              bool
	before             int // what it had acknowledged when it became a voter
}

// latePromotion is a request to promote that is carried out when nobody waits for it any more.
type latePromotion struct{ at, cluster, side, id int }

type simID struct {
	id      ID
	cluster int
	acked   int
}

type world struct {
	random    *rand.Rand
	source    *rand.PCG
	variant   *variant
	storage   Storage
	now       int
	healing   bool
	stale     int // how old a record can be and still be missed; 0 is any age
	offUntil  int // machines of seats that were declared off do not come back before
	rate      int // faults in a hundred steps: schedules differ in it
	doubled   bool
	machines  [maxMachines]simMachine
	volumes   [maxVolumes]simVolume
	epochs    [maxEpochs + 1]simEpoch
	clusters  [maxEpochs]simCluster
	ids       [maxIDs]simID
	nids      int
	attempts  int
	newest    int // epoch, as it really is
	promotion latePromotion
	written   int // highest epoch in which a client's write was acknowledged
	storeUp   bool
	cloudUp   bool
	full      bool // a table has no more room: the schedule ends
	wrong     string
	stuck     bool // what is wrong is that it does not settle
	trace     func(format string, args ...any)
	seen      *[64]int // how often each row was decided
	writes    int

	facts   Facts
	claims  [4]Volume
	list    List
	entries [8]Member
	join    JoinFacts
	others  [8]Voter
	own     Own
	marker  Marker
}

func newWorld(v *variant) *world {
	source := rand.NewPCG(0, 0)
	return &world{source: source, random: rand.New(source), variant: v, seen: new([64]int)}
}

// reset makes the world of a new schedule: no machine, one epoch by the operator.
func (w *world) reset(seed uint64) {
	w.source.Seed(seed, 0x6574636400000000)
	w.now, w.healing, w.stale, w.offUntil, w.doubled, w.nids, w.attempts = 1, false, 0, 0, false, 0, 0
	w.promotion = latePromotion{}
	w.newest, w.written, w.storeUp, w.cloudUp, w.full, w.stuck, w.wrong = 0, 0, true, true, false, false, ""
	for i := range w.machines {
		w.machines[i].exists = false
	}
	for i := range w.volumes {
		w.volumes[i].exists = false
	}
	for i := range w.epochs {
		w.epochs[i].beginAt = 0
	}
	for i := range w.clusters {
		w.clusters[i].exists = false
	}
	w.rate = [...]int{1, 2, 4, 12}[w.random.IntN(4)]
	w.storage = [...]Storage{StorageVolume, StorageVolume, StorageVolume, StorageDisk, StorageMachine}[w.random.IntN(5)]
	set := 1
	if w.one(8) {
		set = 0 // it grows from one member
	}
	w.begin(1, Begin{Members: sets[set]}, set)
	for seat := range maxSeats {
		w.makeVolume(seat)
		w.boot(seat)
	}
}

func (w *world) one(in int) bool { return w.random.IntN(in) == 0 }

// begin creates an epoch if there is none yet.
func (w *world) begin(n int, b Begin, set int) bool {
	if n >= maxEpochs {
		w.full = true
		return false
	}
	e := &w.epochs[n]
	if e.beginAt != 0 {
		return false
	}
	token := n
	if w.variant.sameToken {
		token = 1
	}
	b.Token = words.tokens[token]
	*e = simEpoch{beginAt: w.now, begin: b, set: set, token: token}
	w.newest = n
	w.log("epoch %d begins with %d members, restores %v, previous %v", n, len(b.Members), b.Restore != nil, b.Previous)
	return true
}

func (w *world) makeVolume(seat int) int {
	if w.storage == StorageMachine {
		return none
	}
	for i := range w.volumes {
		v := &w.volumes[i]
		if !v.exists {
			*v = simVolume{exists: true, seat: seat, holder: none, on: OnBlank, files: files{id: none}}
			w.log("volume %d is made for %s", i, seatNames[seat])
			return i
		}
	}
	w.full = true
	return none
}

// boot starts a new machine for a seat.
func (w *world) boot(seat int) int {
	for i := range w.machines {
		m := &w.machines[i]
		if m.exists {
			continue
		}
		*m = simMachine{exists: true, alive: true, seat: seat, volume: none, added: none, reads: none, backup: none, broken: none}
		switch w.storage {
		case StorageMachine: // its own root disk, which is always mounted
			for j := range w.volumes {
				if !w.volumes[j].exists {
					w.volumes[j] = simVolume{exists: true, seat: none, holder: i, on: OnExt4, files: files{id: none}}
					m.volume = j
					break
				}
			}
			w.full = w.full || m.volume == none
		case StorageDisk:
			for j := range w.volumes {
				if v := &w.volumes[j]; v.exists && v.seat == seat {
					v.holder = i
				}
			}
		case StorageVolume:
		}
		w.log("machine %d starts for %s", i, seatNames[seat])
		return i
	}
	w.full = true
	return none
}

// reboot ends the machine's processes; what is on its disks stays.
func (w *world) reboot(m *simMachine) {
	w.log("machine %d restarts", w.number(m))
	w.tear(m)
	volume := m.volume
	*m = simMachine{exists: true, alive: m.alive, seat: m.seat, volume: none, side: m.side, alone: m.alone, added: none, reads: none, backup: none, broken: none}
	if w.storage == StorageMachine {
		m.volume = volume
	}
}

// tear leaves data on which etcd panics, if they are a learner's: it has no vote whose loss that would be.
func (w *world) tear(m *simMachine) {
	v := w.disk(m)
	if v == nil || v.files.id == none || w.healing || !w.one(3) {
		return
	}
	if member := w.clusters[w.ids[v.files.id].cluster].member(v.files.id); member != nil && member.learner {
		w.log("the data of learner %s are torn", w.ids[v.files.id].id)
		v.files.torn = true
	}
}

// end ends a machine for good. Its volume stays attached for a while.
func (w *world) end(m *simMachine) {
	w.log("machine %d ends", w.number(m))
	m.alive, m.running, m.up, m.pending.some = false, false, false, false
	m.freed = w.now + w.random.IntN(60)
	w.collect()
}

// collect forgets dead machines whose volumes are free.
func (w *world) collect() {
	for i := range w.machines {
		m := &w.machines[i]
		if !m.exists || m.alive || m.freed > w.now {
			continue
		}
		m.exists = false
		for j := range w.volumes {
			if v := &w.volumes[j]; v.exists && v.holder == i {
				v.holder = none
				v.exists = w.storage != StorageMachine
			}
		}
	}
}

func (w *world) number(m *simMachine) int {
	for i := range w.machines {
		if m == &w.machines[i] {
			return i
		}
	}
	return none
}

// of returns a living machine of a seat.
func (w *world) of(seat int) *simMachine {
	for i := range w.machines {
		if m := &w.machines[i]; m.exists && m.alive && m.seat == seat {
			return m
		}
	}
	return nil
}

// disk is what the machine has mounted, if the device is still there.
func (w *world) disk(m *simMachine) *simVolume {
	if m.volume == none {
		return nil
	}
	if v := &w.volumes[m.volume]; v.exists && v.holder == w.number(m) {
		return v
	}
	return nil
}

// visible reports whether a read sees a record: one that exists may be missed, as reads may be old.
func (w *world) visible(at int) bool {
	if at == 0 {
		return false
	}
	return w.healing || w.stale != 0 && w.now-at > w.stale || !w.one(12)
}

func (w *world) fail(format string, args ...any) {
	if w.wrong == "" {
		w.wrong = fmt.Sprintf(format, args...)
		w.log("WRONG: %s", w.wrong)
	}
}

func (w *world) log(format string, args ...any) {
	if w.trace != nil {
		w.trace("%5d  "+format, append([]any{w.now}, args...)...)
	}
}
