package member

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/etcd"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki"
)

// environment is what of etcd's environment matters for the next step.
type environment struct {
	clients etcd.Clients
	start   etcd.Start
}

// look gathers what is seen. What does not answer is left out: that is the careful reading.
func (m *Member) look(ctx context.Context) etcd.Facts {
	f := etcd.Facts{Cluster: m.Cluster, Member: m.Member, PeerURL: m.PeerURL, Instance: m.Instance, Storage: m.Storage, Attempt: m.attempt, Broken: m.broken}
	f.Others = slices.ContainsFunc(m.Peers, func(url string) bool { return url != m.PeerURL })
	service, err := m.Service.State(ctx)
	f.Etcd.Running = service.Running || err != nil // what cannot be asked is not started again
	f.Etcd.Failing = service.Failing
	if f.Etcd.Running || m.Storage == etcd.StorageMachine {
		f.Disk = m.directory()
	} else {
		m.volumes(ctx, &f)
	}
	var silent error
	f.Store, silent = m.store(ctx, &f)
	f.Store.Answers = silent == nil
	if f.Disk.Mounted && f.Store.Epoch > 0 {
		_, err := os.Stat(m.restoreDir(f.Store.Epoch))
		f.Disk.Restored = err == nil
	}
	if f.Etcd.Running {
		m.process(ctx, &f)
		f.Etcd.Panics = m.panicked(ctx, &f, service, err)
	} else {
		m.reads, m.said, m.panics = time.Time{}, nil, panics{}
	}
	if f.List == nil && f.Store.Outcome != nil && f.Store.Outcome.Formed != nil {
		f.List = m.others(ctx, &f)
	}
	return f
}

// directory looks at the member's files, where its disk was mounted before if it has one.
func (m *Member) directory() etcd.Disk {
	mounted := true
	var err error
	if m.Storage != etcd.StorageMachine {
		mounted, err = isMount(m.Dir)
	}
	if err != nil || !mounted {
		return etcd.Disk{}
	}
	disk, err := ReadDir(m.Dir)
	if err != nil {
		m.trouble = err
		return etcd.Disk{}
	}
	return disk
}

// volumes finds the volume and what is on it. If the cloud does not answer, what it said last is enough to look at a disk
// that is mounted.
func (m *Member) volumes(ctx context.Context, f *etcd.Facts) {
	claims, err := m.Volumes.Find(ctx)
	f.Volumes.Known = err == nil
	if err == nil {
		m.claims = claims
	}
	f.Volumes.Claims = m.claims
	if len(m.claims) != 1 || m.claims[0].Holder != m.Instance || m.claims[0].Device == "" {
		return
	}
	disk, err := m.Disk.Look(ctx, m.claims[0].Device)
	if err != nil {
		m.trouble = err
		return
	}
	f.Disk = disk
}

// store reads the records that matter for the next step. What was read once cannot change, and is not read again.
func (m *Member) store(ctx context.Context, f *etcd.Facts) (s etcd.Store, err error) {
	for {
		begin, err := read[etcd.Begin](ctx, m, etcd.BeginObject(m.epoch+1))
		if err != nil {
			return s, err
		}
		if begin == nil {
			break
		}
		m.epoch++
	}
	if s.Epoch = m.epoch; s.Epoch > 0 {
		if s.Begin, err = read[etcd.Begin](ctx, m, etcd.BeginObject(s.Epoch)); err != nil {
			return s, err
		}
		if s.Outcome, err = read[etcd.Outcome](ctx, m, etcd.OutcomeObject(s.Epoch)); err != nil {
			return s, err
		}
	}
	if f.Etcd.Running {
		return s, nil
	}
	if s.Epoch > 0 && s.Outcome == nil {
		if s.Started, err = read[etcd.Started](ctx, m, etcd.StartedObject(s.Epoch, m.Member)); err != nil {
			return s, err
		}
	}
	place := volume(*f)
	if m.Storage == etcd.StorageMachine {
		place = m.Instance
	}
	if place == "" || m.Storage != etcd.StorageMachine && len(f.Volumes.Claims) != 1 {
		return s, nil
	}
	if s.Removed, err = read[etcd.Removed](ctx, m, etcd.RemovedObject(place)); err != nil || m.Storage == etcd.StorageMachine {
		return s, err
	}
	id := place
	if s.Made, err = read[etcd.Made](ctx, m, etcd.MadeObject(id)); err != nil {
		return s, err
	}
	s.Used, err = read[etcd.Used](ctx, m, etcd.UsedObject(id))
	return s, err
}

// unreadable is the error of read for a record that is there and cannot be parsed.
type unreadable struct{ error }

func (u unreadable) Unwrap() error { return u.error }

// read reads a record; it is nil if there is none.
func read[T etcd.Record](ctx context.Context, m *Member, object string) (*T, error) {
	data, known := m.records[object]
	if !known {
		ctx, cancel := m.answer(ctx)
		defer cancel()
		var err error
		data, err = m.Records.Get(ctx, object)
		if errors.Is(err, pki.ErrNotFound) {
			return nil, nil
		}
		if err != nil {
			m.trouble = err
			return nil, err
		}
	}
	record, err := etcd.Parse[T](data)
	if err != nil {
		m.trouble = unreadable{fmt.Errorf("%s: %w", object, err)}
		return nil, m.trouble
	}
	m.records[object] = data
	return &record, nil
}

// process looks at the etcd of this machine.
func (m *Member) process(ctx context.Context, f *etcd.Facts) {
	e := m.environment()
	f.Etcd.Clients, f.Etcd.Start = e.clients, e.start
	peer := m.mine()
	asking, cancel := m.answer(ctx)
	err := peer.Read(asking)
	cancel()
	if err != nil {
		m.reads = time.Time{}
		return
	}
	now := m.Clock.Now()
	if m.reads.IsZero() {
		m.reads = now
	}
	f.Etcd.Reads, f.Etcd.ReadsFor = true, now.Sub(m.reads)
	if f.List = m.list(ctx, peer); f.List != nil {
		m.learn(f.List)
	}
}

// panics is how often etcd has panicked in a row.
type panics struct {
	// seen: since is known. It is how often etcd had ended by itself when the row began.
	seen  bool
	since int
}

// panicked counts etcd's panics in a row. Those before this process first looked do not count: what came between them nobody
// knows. An end that it missed counts as its neighbors do.
func (m *Member) panicked(ctx context.Context, f *etcd.Facts, service State, unknown error) int {
	if unknown != nil {
		return 0
	}
	p := &m.panics
	again := !p.seen || service.Ends < p.since || service.Failing && !service.Panicked
	if !again && service.Ends > p.since {
		asking, cancel := m.answer(ctx)
		defer cancel()
		_, err := m.mine().Status(asking)
		again = f.Etcd.Reads || err == nil
	}
	if again {
		*p = panics{true, service.Ends}
	}
	return service.Ends - p.since
}

// mine is this machine's own member.
func (m *Member) mine() Peer {
	if m.environment().clients == etcd.Closed {
		return m.peer(etcd.ClosedURL())
	}
	return m.peer(m.Own)
}

func (m *Member) peer(url string) Peer {
	p, ok := m.peers[url]
	if !ok {
		p = m.Peer(url)
		m.peers[url] = p
	}
	return p
}

func (m *Member) list(ctx context.Context, p Peer) *etcd.List {
	ctx, cancel := m.answer(ctx)
	defer cancel()
	list, err := p.Members(ctx)
	if err != nil {
		return nil
	}
	return &list
}

func (m *Member) isMine(member etcd.Member) bool {
	return member.PeerURL == m.PeerURL || member.Name == m.Member
}

// others asks the other members, as far as they are known, for the list of members.
func (m *Member) others(ctx context.Context, f *etcd.Facts) *etcd.List {
	for _, peer := range f.Store.Begin.Members {
		if peer.Name != m.Member {
			m.known[peer.URL] = true
		}
	}
	for _, url := range m.Peers {
		if url != m.PeerURL {
			m.known[url] = true
		}
	}
	answers := make(chan *etcd.List, len(m.known))
	for url := range m.known {
		peer := m.peer(clientURL(url))
		go func() { answers <- m.list(ctx, peer) }()
	}
	for range len(m.known) {
		if list := <-answers; list != nil && list.ClusterID == f.Store.Outcome.Formed.ClusterID {
			m.learn(list)
			return list
		}
	}
	return nil
}

// learn remembers where the other members are.
func (m *Member) learn(list *etcd.List) {
	for _, member := range list.Members {
		if !m.isMine(member) {
			m.known[member.PeerURL] = true
		}
	}
}

// environment is what the file says that etcd was started with; read once, as nobody else writes it.
func (m *Member) environment() environment {
	if m.written != nil {
		return *m.written
	}
	m.written = &environment{}
	data, err := os.ReadFile(m.Environment)
	if err != nil {
		return *m.written // the careful reading
	}
	m.written.clients = etcd.Open
	for line := range strings.Lines(string(data)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		switch name {
		case "ETCD_LISTEN_CLIENT_URLS":
			m.written.clients = etcd.Closed
		case "ETCD_INITIAL_CLUSTER_STATE":
			if value == "new" {
				m.written.start = etcd.New
			}
		case "ETCD_INITIAL_CLUSTER":
			if strings.Contains(value, ",") && m.written.start == etcd.Sealed {
				m.written.start = etcd.Joining
			}
		}
	}
	return *m.written
}
