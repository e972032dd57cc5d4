package nemesis

import (
	"context"
	"errors"
	"fmt"
	"maps"
	mrand "math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/etcd"
	"github.com/hardtack/packer-plugin-hardtack/pkg/etcd/gateway"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/member"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/volume"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki"
)

// pace is how much faster the agent's clock goes than etcd's: its waits of a minute take three seconds.
const pace = 20

// fast is a machine's clock, as its agent sees it.
type fast struct{ m *machine }

func (c fast) Now() time.Time {
	c.m.mu.Lock()
	defer c.m.mu.Unlock()
	return c.m.w.now().Add(c.m.skew)
}

// now is the right time: that of the machines' clocks, unless they are wrong.
func (w *world) now() time.Time { return w.began.Add(pace * time.Since(w.began)) }

func (c fast) Sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d / pace):
		return nil
	}
}

// records is the cluster's store.
type records struct {
	mu      sync.Mutex
	objects map[string][]byte
	old     map[string][]byte // what a stale read sees; nil if reads are fresh
	fault   storeFault
	rng     *mrand.Rand
	token   string // that every epoch gets; "" lets each have its own
}

// storeFault is what is wrong with the store.
type storeFault int

const (
	storeWorks storeFault = iota
	storeDown
	storeLosesAnswers // some writes happen, and are said not to
	storeIsOld        // reads see what was there when the fault began
	storeIsSlow       // answers take up to slowest; what is written may be there long after its writer has given up
)

// slowest is more than an agent waits for an answer.
const slowest = 3 * time.Second

// patience is how long an agent waits for an answer.
const patience = 1500 * time.Millisecond

var errStore = errors.New("the store does not answer")

func newRecords(seed uint64) *records {
	r := &records{objects: map[string][]byte{}, rng: mrand.New(mrand.NewPCG(seed, 7))}
	r.objects[etcd.BeginObject(1)] = etcd.Encode(etcd.Begin{Token: etcd.NewToken(), Members: peers(seats)})
	return r
}

// peers are members with where they offer themselves.
func peers(members []string) (list []etcd.Peer) {
	for _, seat := range members {
		list = append(list, etcd.Peer{Name: seat, URL: peerURL(seat)})
	}
	return list
}

func peerURL(seat string) string {
	return "https://etcd-" + seat + strings.TrimSuffix(suffix, ".") + ":2380"
}

func (r *records) set(f storeFault) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fault, r.old = f, nil
	if f == storeIsOld {
		r.old = maps.Clone(r.objects)
	}
}

func (r *records) String() string { return "the nemesis's store" }

// delay is how long an answer takes.
func (r *records) delay() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.fault != storeIsSlow || r.rng.IntN(3) == 0 {
		return 0
	}
	return time.Duration(r.rng.Int64N(int64(slowest)))
}

func sleep(ctx context.Context, d time.Duration) error {
	if d == 0 {
		return ctx.Err()
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// Get answers with what is there when it is asked, which may be a while before it answers.
func (r *records) Get(ctx context.Context, object string) ([]byte, error) {
	data, err := r.get(ctx, object)
	return data, errors.Join(err, sleep(ctx, r.delay()))
}

func (r *records) get(ctx context.Context, object string) ([]byte, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	from := r.objects
	switch {
	case r.fault == storeDown:
		return nil, errStore
	case r.old != nil:
		from = r.old
	}
	if data, ok := from[object]; ok {
		return data, nil
	}
	return nil, pki.ErrNotFound
}

func (r *records) Create(ctx context.Context, object string, content []byte) error {
	return r.write(ctx, object, content, true)
}

func (r *records) Put(ctx context.Context, object string, content []byte) error {
	return r.write(ctx, object, content, false)
}

// write happens, late or not, whether its caller still waits for it or not.
func (r *records) write(ctx context.Context, object string, content []byte, once bool) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	d := r.delay()
	if d == 0 {
		return r.put(object, content, once)
	}
	result := make(chan error, 1)
	time.AfterFunc(d, func() { result <- r.put(object, content, once) })
	select {
	case <-ctx.Done():
		return ctx.Err()
	case err := <-result:
		return err
	}
}

func (r *records) put(object string, content []byte, once bool) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.fault == storeDown {
		return errStore
	}
	if _, exists := r.objects[object]; exists && once {
		return pki.ErrExists
	}
	r.objects[object] = content
	r.same(object)
	if r.fault == storeLosesAnswers && r.rng.IntN(2) == 0 {
		return errStore
	}
	return nil
}

// same gives an epoch the token that every epoch gets, if there is such a one.
func (r *records) same(object string) {
	if begin, err := etcd.Parse[etcd.Begin](r.objects[object]); r.token != "" && strings.HasSuffix(object, "/begin") && err == nil {
		begin.Token = r.token
		r.objects[object] = etcd.Encode(begin)
	}
}

// oneToken lets every epoch have the cluster's name as its token.
func (r *records) oneToken() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.token = clusterName
	r.same(etcd.BeginObject(1))
}

// copy is all that is there now.
func (r *records) copy() map[string][]byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.objects)
}

// view is the store as one machine reads it.
type view struct {
	*records
	m *machine
}

func (v view) Get(ctx context.Context, object string) ([]byte, error) {
	v.m.mu.Lock()
	old := v.m.old
	v.m.mu.Unlock()
	if old == nil {
		return v.records.Get(ctx, object)
	}
	if data, ok := old[object]; ok {
		return data, nil
	}
	return nil, pki.ErrNotFound
}

// epoch is the newest.
func (r *records) epoch() int {
	n := 1
	for r.has(etcd.BeginObject(n + 1)) {
		n++
	}
	return n
}

// formed reports whether the newest epoch has a cluster.
func (r *records) formed() bool {
	outcome, err := etcd.Parse[etcd.Outcome](r.copy()[etcd.OutcomeObject(r.epoch())])
	return err == nil && outcome.Formed != nil
}

func (r *records) has(object string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, ok := r.objects[object]
	return ok
}

// agent is the machine's own agent, with the machine's adapters.
type agent struct {
	w *world
	// What a wrong variant has in the place of the agent's own.
	decide     func(etcd.Facts) etcd.Action
	decideJoin func(etcd.JoinFacts) etcd.JoinAction
	records    func(member.Records) member.Records // of one process
	flags      []string
	force      bool          // it takes a volume from whoever has it
	promotes   bool          // it promotes whoever is a learner in the list
	alone      time.Duration // after which a member without a quorum goes on alone; 0 is never
}

func (a agent) run(ctx context.Context, m *machine) error {
	where := m.mountpoint()
	service := &service{m: m, environment: m.environment(), data: filepath.Join(where, etcd.DataDir), flags: a.flags}
	var store member.Records = view{m.w.store, m}
	if a.records != nil {
		store = a.records(store)
	}
	peer := func(url string) member.Peer {
		return hasty{gateway.New(gateway.Config{URL: url, TLS: m.w.tls.client, Dial: m.dial}), m.w}
	}
	backups, err := m.keeper()
	if err != nil {
		return err
	}
	decide := a.decide
	switch {
	case a.alone > 0:
		decide = a.impatient(service)
	case a.promotes:
		decide = promoting(ctx, peer("https://"+m.address.String()+":"+clientPort))
	}
	return member.New(member.Config{
		Cluster: clusterName, Member: m.seat, PeerURL: peerURL(m.seat), Instance: m.id, Storage: etcd.StorageVolume,
		Dir: where, Environment: m.environment(), Own: "https://" + m.address.String() + ":" + clientPort,
		Records: store, Volumes: volumes{m, a.force}, Disk: &volume.Disk{Mounter: mounter{m}, Where: where}, Service: service,
		Peer: peer, Backups: backups, BackupEvery: backupEvery,
		Clock: fast{m}, Answer: patience, Decide: decide, DecideJoin: a.decideJoin,
		Say: func(r member.Report) {
			if r.Err == nil && r.Why.Reason == "" {
				m.w.steps.Add(1)
			}
			if r.Action.Row != etcd.V0Silent { // a backup has no row
				m.mu.Lock()
				m.row = r.Action.Row
				m.mu.Unlock()
			}
			m.w.logf("%s (%s) %s %s: %s%s", m.seat, m.id, r.Action.Row, r.Step, r.Why.Cause, failed(r.Err))
		},
	}).Run(ctx)
}

// impatient is the agent that forces a new cluster upon what it has after a while without a quorum.
func (a agent) impatient(s *service) func(etcd.Facts) etcd.Action {
	var since time.Time
	return func(f etcd.Facts) etcd.Action {
		action := etcd.Decide(f)
		if action.Do != etcd.Report || f.Etcd.Reads {
			since = time.Time{}
			return action
		}
		if since.IsZero() {
			since = time.Now()
		}
		if time.Since(since) < a.alone || len(s.flags) > 0 {
			return action
		}
		s.flags = []string{"--force-new-cluster"}
		return etcd.Action{Row: etcd.N5Open, Do: etcd.Reopen, Clients: etcd.Open}
	}
}

func failed(err error) string {
	if err == nil {
		return ""
	}
	return ": " + err.Error()
}

// hasty gives locks that last as long by the agent's clock as they should.
type hasty struct {
	*gateway.Client
	w *world
}

// Status and Members give their connections up, as the agent's own peers do (gateway.Files): one that was made while a name led to
// another member would keep leading there.
func (h hasty) Status(ctx context.Context) (member.Status, error) {
	defer h.Close()
	return h.Client.Status(ctx)
}

func (h hasty) Members(ctx context.Context) (etcd.List, error) {
	defer h.Close()
	return h.Client.Members(ctx)
}

// Promote holds every promotion against the rule that a voter has data.
func (h hasty) Promote(ctx context.Context, id etcd.ID) error {
	err := h.Client.Promote(ctx, id)
	if err == nil && !h.w.hasData(id) {
		h.w.breach("member %s is promoted to a voter, and its data are gone", id)
	}
	return err
}

func (h hasty) Lock(ctx context.Context, holder string, ttl time.Duration) (member.Lease, error) {
	return h.Client.Lock(ctx, holder, ttl/pace)
}

// volumes are the cloud's, as the machine sees them.
type volumes struct {
	m     *machine
	force bool
}

func (c volumes) Find(ctx context.Context) ([]etcd.Volume, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	list := []etcd.Volume{}
	for _, v := range c.m.w.volumesOf(c.m.seat) {
		claim := v.seen(c.m)
		if c.force && claim.Holder != c.m.id {
			claim.Holder, claim.Free = "", true
		}
		list = append(list, claim)
	}
	return list, nil
}

func (c volumes) Attach(ctx context.Context, id string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	for _, v := range c.m.w.volumesOf(c.m.seat) {
		if v.id == id {
			if c.force {
				v.tear(c.m)
			}
			return v.attach(c.m)
		}
	}
	return errors.New("InvalidVolume.NotFound: " + id)
}

// mounter mounts as systemd does.
type mounter struct{ m *machine }

func (c mounter) Mount(ctx context.Context, what, where, kind, options string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	v := c.m.volume()
	if v == nil {
		return errors.New("no such device: " + what)
	}
	return v.mounted(where)
}

// service is etcd's unit.
type service struct {
	m                 *machine
	environment, data string
	flags             []string
}

func (s *service) State(ctx context.Context) (member.State, error) {
	d := s.m.running()
	if d == nil {
		return member.State{}, ctx.Err()
	}
	return d.state(), ctx.Err()
}

func (s *service) Stop(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.m.stopEtcd()
	return nil
}

// Start starts etcd with what its unit would read, and holds it against the rule that a first start has a record.
func (s *service) Start(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	text, err := os.ReadFile(s.environment)
	if err != nil {
		return fmt.Errorf("the unit's environment: %w", err)
	}
	lines := append(s.m.settings(s.data), "ETCD_LISTEN_CLIENT_URLS=https://"+s.m.address.String()+":"+clientPort)
	lines = environment(append(lines, strings.Split(strings.TrimSpace(string(text)), "\n")...))
	for _, line := range lines {
		if line == "ETCD_INITIAL_CLUSTER_STATE=new" {
			s.m.w.firstStart(s.m)
		}
	}
	if marker, err := os.ReadFile(filepath.Join(filepath.Dir(s.data), etcd.MarkerFile)); err == nil {
		if of, err := etcd.Parse[etcd.Marker](marker); err == nil {
			s.m.volume().is(of.MemberID)
		}
	}
	return s.m.startEtcd(lines, s.flags...)
}

// firstStart is called with every start that may begin a cluster: each has a record of its own.
func (w *world) firstStart(m *machine) {
	w.mu.Lock()
	w.firsts[m.seat]++
	n := w.firsts[m.seat]
	w.mu.Unlock()
	records := 0
	for epoch := 1; w.store.has(etcd.BeginObject(epoch)); epoch++ {
		if w.store.has(etcd.StartedObject(epoch, m.seat)) {
			records++
		}
	}
	if n > records {
		w.breach("%s may begin a cluster for the time %d, with %d records that it did", m.seat, n, records)
	}
}
