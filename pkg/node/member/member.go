// Package member runs an etcd member on its machine: it looks at the volume, the records and the other members, lets
// pkg/etcd decide, does the one step, and looks again, for as long as the machine lives.
//
// Its rule: it decides nothing. What may be done is pkg/etcd's; here is how, with every step on stable storage before the
// next one that relies on it. It can end between any two of them: what it must remember is in the records, in the marker
// and in etcd. What it keeps in memory (an attempt, an added ID, a lock) is lost with it on purpose.
package member

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/clock"
	"github.com/hardtack/packer-plugin-hardtack/pkg/etcd"
)

// Records are the objects of the cluster's store that etcd's members use.
type Records interface {
	// Get returns an object. Its error matches pki.ErrNotFound if there is none.
	Get(ctx context.Context, object string) ([]byte, error)
	// Create creates an object. Its error matches pki.ErrExists if there is one.
	Create(ctx context.Context, object string, content []byte) error
	// Put creates or replaces an object.
	Put(ctx context.Context, object string, content []byte) error
}

// Volumes finds the volumes with the member's tags in this machine's zone, and attaches one.
type Volumes interface {
	Find(ctx context.Context) ([]etcd.Volume, error)
	Attach(ctx context.Context, id string) error
}

// Disk is the place of the member's disk on this machine.
type Disk interface {
	Look(ctx context.Context, device string) (etcd.Disk, error)
	Format(ctx context.Context, device, uuid string) error
	Mount(ctx context.Context, device, uuid string) error
	Grow(ctx context.Context, device string) error
}

// Service is etcd's service on this machine.
type Service interface {
	State(ctx context.Context) (State, error)
	// Start starts it and does not wait until it is ready, which a member alone never is.
	Start(ctx context.Context) error
	// Stop returns once its processes have ended.
	Stop(ctx context.Context) error
}

// State is the state of a service. The zero value is one that is stopped.
type State struct {
	// Running: it is started, even if it fails and is tried again. Failing: it ended by itself and waits for its next start.
	Running, Failing bool
	// Ends is how often it has ended by itself since Start. Panicked: it is Failing, and its last end was a Go program's panic.
	Ends     int
	Panicked bool
}

// Peer is an etcd member that can be asked.
type Peer interface {
	// Members, by a linearizable read.
	Members(ctx context.Context) (etcd.List, error)
	Status(ctx context.Context) (Status, error)
	// Read makes a linearizable read.
	Read(ctx context.Context) error
	AddLearner(ctx context.Context, peerURL string) (etcd.ID, error)
	Remove(ctx context.Context, id etcd.ID) error
	Promote(ctx context.Context, id etcd.ID) error
	// Update changes the peer URL of a member.
	Update(ctx context.Context, id etcd.ID, peerURL string) error
	// Lock takes etcd.LockKey; its error matches ErrHeld if another one has it. Renew's matches it once the lease is over.
	Lock(ctx context.Context, holder string, ttl time.Duration) (Lease, error)
	Renew(ctx context.Context, lease Lease) error
	Unlock(ctx context.Context, lease Lease) error
	// Snapshot writes the member's database and, at its end, the SHA-256 of it.
	Snapshot(ctx context.Context, w io.Writer) error
	Upkeep
}

// Upkeep is what a member does for its database.
type Upkeep interface {
	// Defragment returns when the member has given its free space back; it answers nobody meanwhile.
	Defragment(ctx context.Context) error
	// Compact forgets all but the newest revision, in every member.
	Compact(ctx context.Context) error
	// Disarm ends the alarm NOSPACE of a member.
	Disarm(ctx context.Context, id etcd.ID) error
}

// Backups are where the cluster's backups are.
type Backups interface {
	// Newest is the newest verified backup of an epoch; nil if there is none. It may be one of some minutes ago.
	Newest(ctx context.Context, epoch int) (*etcd.Backup, error)
	// Take takes a backup of an epoch by a member, and verifies it.
	Take(ctx context.Context, epoch int, from Peer) error
	// Drill takes the newest backup of an epoch back from its place, restores it for a trial, and returns it with the time of
	// that; nil if there is none. Its error matches ErrDamaged if what the place has is not what was stored.
	Drill(ctx context.Context, epoch int) (*etcd.Backup, error)
	// Restore restores the backup that an epoch starts from into a new directory, complete and on stable storage.
	Restore(ctx context.Context, begin etcd.Begin, member, dir string) error
}

// Owner is whom etcd's files belong to. The zero value leaves them to the agent's own user.
type Owner struct{ UID, GID int }

// Config is what a member's machine is, and with what it acts.
type Config struct {
	Cluster, Member, PeerURL, Instance string
	// Peers are the peer URLs of all members that the machine's configuration names; empty for one that is alone. Whoever of
	// them answers tells of the others, also of members of which the records of the first start know nothing.
	Peers   []string
	Storage etcd.Storage
	// Dir is where the member's files are: etcd.Dir but in tests.
	Dir   string
	Owner Owner
	// Environment is the file that etcd's service reads last.
	Environment string
	// Own is the client URL at which this machine reaches its own member once that is open.
	Own string

	Records Records
	// Volumes and Disk are nil for etcd.StorageMachine.
	Volumes Volumes
	Disk    Disk
	Service Service
	// Peer returns the member with a client URL. It makes no request.
	Peer func(url string) Peer
	// Backups is nil where the cluster has no place for them. BackupEvery is how old the newest one becomes while this member
	// leads; zero is the constant.
	Backups     Backups
	BackupEvery time.Duration

	Clock clock.Clock
	// Poll is the time between two looks while something is waited for (zero is 2 s), Watch while etcd runs as it should
	// (zero is 15 s), and Answer how long anything may take to answer (zero is 5 s).
	Poll, Watch, Answer time.Duration
	// Decide and DecideJoin are etcd's; tests of what would go wrong have others.
	Decide     func(etcd.Facts) etcd.Action
	DecideJoin func(etcd.JoinFacts) etcd.JoinAction
	// Say is told of every look that differs from the one before.
	Say func(Report)
}

// Report is what the machine did, or waits for.
type Report struct {
	Action etcd.Action
	// Step is the step's name, for a replacement too: "join: promote".
	Step string
	// Why is empty if nothing is waited for.
	Why etcd.Explanation
	// Err is why the step failed; it is tried again.
	Err error
}

// Member is a member's loop. Its methods are not safe for concurrent use.
type Member struct {
	Config
	peers   map[string]Peer   // by client URL
	known   map[string]bool   // the peer URLs of other members
	records map[string][]byte // that were read, and cannot change any more
	claims  []etcd.Volume     // what the cloud said last
	epoch   int               // the newest that was seen
	attempt string            // see etcd.Facts
	written *environment      // what the environment file says; nil until it was read
	panics  panics            // of etcd
	broken  etcd.ID           // see etcd.Facts
	reads   time.Time         // since when the own member has read without a pause
	lease   Lease             // of the lock
	added   etcd.ID           // see etcd.JoinFacts
	silent  time.Time         // since when nobody has answered as this member
	target  uint64            // see etcd.JoinFacts
	said    *etcd.Own         // what the own member said in the last look
	leaders map[etcd.ID]leaderView
	trouble error     // why something could not be seen in this look
	told    string    // the last report
	status  time.Time // when the status was written
	wrote   string    // what of the status is written at once when it changes
	alarms  []string  // of the own member
	busy    *upkeep   // what is being done for all members; nil if nothing
	// orders.answered is the last order of an epoch before the first without an answer; tended and rested are when this machine
	// looked for free space, and when it began to give it back.
	orders         struct{ epoch, answered int }
	tended, rested time.Time
	backup         backup
	drill          drill
}

// StatusEvery is how often a member's status is written.
const StatusEvery = time.Minute

// New returns the loop of a machine.
func New(c Config) *Member {
	if c.Poll == 0 {
		c.Poll = 2 * time.Second
	}
	if c.Watch == 0 {
		c.Watch = 15 * time.Second
	}
	if c.Answer == 0 {
		c.Answer = 5 * time.Second
	}
	if c.BackupEvery == 0 {
		c.BackupEvery = BackupEvery
	}
	if c.Decide == nil {
		c.Decide = etcd.Decide
	}
	if c.DecideJoin == nil {
		c.DecideJoin = etcd.DecideJoin
	}
	if c.Say == nil {
		c.Say = func(Report) {}
	}
	return &Member{Config: c, peers: map[string]Peer{}, known: map[string]bool{}, records: map[string][]byte{}, leaders: map[etcd.ID]leaderView{}}
}

// Run works until ctx ends, and returns its error.
func (m *Member) Run(ctx context.Context) error {
	defer m.endBackup()
	defer m.endDrill()
	for ctx.Err() == nil {
		if err := m.Clock.Sleep(ctx, m.step(ctx)); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// step looks, decides and acts once, and returns the time until the next look.
func (m *Member) step(ctx context.Context) time.Duration {
	m.trouble = nil
	facts := m.look(ctx)
	action := m.Decide(facts)
	if ctx.Err() != nil {
		return 0
	}
	report := Report{Action: action, Step: action.Do.String(), Why: action.Explain(facts)}
	wait := m.Poll
	switch action.Do {
	case etcd.Wait, etcd.Stop:
		report.Err = m.trouble
	case etcd.Report:
		if report.Err = m.watch(ctx, facts); report.Err == nil {
			wait = m.Watch
		}
		if why := etcd.Alarmed(m.alarms); why.Cause != "" {
			report.Why = why
		}
	case etcd.Join:
		var more bool
		if report.Step, more, report.Why, report.Err = m.join(ctx, facts); more {
			wait = again
		}
	default:
		if report.Err = m.act(ctx, action, facts); report.Err == nil {
			wait = again
		}
	}
	if ctx.Err() == nil {
		m.waits(ctx, facts, report)
		m.say(report)
	}
	return wait
}

// again is the time between a step that was taken and the next look.
const again = 20 * time.Millisecond

func (m *Member) say(r Report) {
	if text := fmt.Sprint(r.Action.Row, r.Step, r.Why, r.Err); text != m.told {
		m.told = text
		m.Say(r)
	}
}

// answer bounds what must answer.
func (m *Member) answer(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, m.Answer)
}
