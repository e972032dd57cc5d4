package member_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/etcd"
	"github.com/hardtack/packer-plugin-hardtack/pkg/etcd/etcdtest"
	"github.com/hardtack/packer-plugin-hardtack/pkg/etcd/gateway"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/member"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki"
)

// memory is the cluster's store.
type memory struct {
	mu      sync.Mutex
	objects map[string][]byte
}

func (r *memory) Get(_ context.Context, object string) ([]byte, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if data, ok := r.objects[object]; ok {
		return data, nil
	}
	return nil, pki.ErrNotFound
}

func (r *memory) Create(_ context.Context, object string, content []byte) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, ok := r.objects[object]; ok {
		return pki.ErrExists
	}
	r.objects[object] = content
	return nil
}

func (r *memory) Put(_ context.Context, object string, content []byte) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.objects[object] = content
	return nil
}

// bench is a cluster of real members, each with the agent's own loop, on addresses of the loopback.
type bench struct {
	*testing.T
	dir   string
	bin   string
	store *memory
	seats map[string]*seat
	extra []string // etcd's flags
	// reached is the URL at which a machine reaches another one's; nil is the same.
	reached func(from, url string) string
}

// seat is a member's machine. It is etcd's service, too.
type seat struct{ *etcdtest.Process }

func newBench(t *testing.T, members []string, flags ...string) *bench {
	t.Helper()
	b := &bench{T: t, dir: t.TempDir(), store: &memory{objects: map[string][]byte{}}, seats: map[string]*seat{}, extra: flags}
	b.bin = etcdtest.Programs(t, b.dir)
	begin := etcd.Begin{Token: etcd.NewToken()}
	for _, m := range members {
		begin.Members = append(begin.Members, etcd.Peer{Name: m, URL: b.seat(m).PeerURL()})
	}
	b.store.objects[etcd.BeginObject(1)] = etcd.Encode(begin)
	for _, m := range members {
		b.boot(m, "i-"+m, nil)
	}
	within(t, func() error {
		if _, err := b.store.Get(t.Context(), etcd.OutcomeObject(1)); err != nil {
			return err
		}
		return b.voters(members[0], len(members))
	})
	return b
}

func (b *bench) seat(name string) *seat {
	s, ok := b.seats[name]
	if !ok {
		n := len(b.seats)
		s = &seat{&etcdtest.Process{Bin: b.bin, Name: name, Address: etcdtest.Address(10 + n), Closed: etcdtest.Address(20 + n), Environment: filepath.Join(b.dir, name+".env"),
			Flags: append([]string{"--heartbeat-interval=50", "--election-timeout=500"}, b.extra...)}}
		b.seats[name] = s
	}
	return s
}

func (s *seat) client() *gateway.Client {
	return gateway.New(gateway.Config{URL: s.ClientURL()})
}

// boot starts the agent of a machine of a member, on what earlier ones left of the member's data. peers are the members that
// the machine's configuration names. end ends the machine.
func (b *bench) boot(name, instance string, peers []string) (end func()) {
	s := b.seat(name)
	dir := filepath.Join(b.dir, "of-"+name)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		b.Fatal(err)
	}
	clock := etcdtest.NewClock(etcdtest.Pace)
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = member.New(member.Config{
			Cluster: "demo", Member: name, PeerURL: s.PeerURL(), Peers: peers, Instance: instance, Storage: etcd.StorageMachine, Dir: dir, Environment: s.Environment,
			Own: s.ClientURL(), Records: b.store, Service: s, Clock: clock, Answer: 2 * time.Second,
			Peer: func(url string) member.Peer {
				if url == etcd.ClosedURL() { // each address of the loopback is a machine here
					url = s.ClosedURL()
				}
				if b.reached != nil {
					url = b.reached(name, url)
				}
				return clock.Hasty(gateway.New(gateway.Config{URL: url}))
			},
			Say: func(r member.Report) { b.Logf("%s: %s %s %s %v", instance, r.Action.Row, r.Step, r.Why.Cause, r.Err) },
		}).Run(ctx)
	}()
	end = sync.OnceFunc(func() {
		stop()
		<-ended
		_ = s.Stop(context.Background())
	})
	b.Cleanup(end)
	return end
}

// voters fails unless the cluster has as many voters, all started, and no learner.
func (b *bench) voters(at string, n int) error {
	list, err := b.seat(at).client().Members(b.Context())
	if err != nil {
		return err
	}
	for _, m := range list.Members {
		if m.Learner || !m.Started {
			return fmt.Errorf("member %s is no voter yet", m.Name)
		}
	}
	if len(list.Members) != n {
		return fmt.Errorf("%d members, want %d", len(list.Members), n)
	}
	return nil
}

// leader is the name of the leader.
func (b *bench) leader() (name string) {
	within(b.T, func() error {
		for _, n := range slices.Sorted(maps.Keys(b.seats)) {
			said, err := b.seats[n].client().Status(b.Context())
			if err == nil && said.ID != 0 && said.Leader == said.ID {
				name = n
				return nil
			}
		}
		return errors.New("nobody leads")
	})
	return name
}

// order gives an order and returns its answer.
func (b *bench) order(n int, o etcd.Order) etcd.Answer {
	b.Helper()
	o.At = time.Now()
	if err := b.store.Create(b.Context(), etcd.OrderObject(1, n), etcd.Encode(o)); err != nil {
		b.Fatal(err)
	}
	var answer etcd.Answer
	within(b.T, func() error {
		data, err := b.store.Get(b.Context(), etcd.AnswerObject(1, n))
		if err == nil {
			answer, err = etcd.Parse[etcd.Answer](data)
		}
		return err
	})
	return answer
}

// put writes a value of a size, and returns what etcd answers.
func (b *bench) put(at, key string, size int) error {
	return b.call(at, "/v3/kv/put", map[string]string{"key": coded(key), "value": base64.StdEncoding.EncodeToString(make([]byte, size))})
}

func coded(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }

func (b *bench) call(at, path string, body any) error {
	return post(b.Context(), b.seat(at).ClientURL()+path, body, nil)
}

// post asks a member, and reads what it answers into something unless that is nil.
func post(ctx context.Context, url string, body, into any) error {
	text, err := json.Marshal(body)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(text))
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		why, _ := io.ReadAll(resp.Body) // what came is enough
		return fmt.Errorf("%s: %s", resp.Status, why)
	}
	if into == nil {
		return nil
	}
	return json.NewDecoder(resp.Body).Decode(into)
}

func within(t *testing.T, f func() error) {
	t.Helper()
	var err error
	for end := time.Now().Add(2 * time.Minute); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		if err = f(); err == nil {
			return
		}
	}
	t.Fatal(err)
}

// TestNoSpace fills a real cluster to its quota: nothing is written any more, each status has the alarm, and one order makes
// it take writes again.
func TestNoSpace(t *testing.T) {
	const quota = 16 << 20
	b := newBench(t, []string{"a", "b", "c"}, fmt.Sprintf("--quota-backend-bytes=%d", quota))
	within(t, func() error { // a member that has just formed the cluster is started again, and refuses for that
		if err := b.put("a", "key", 1<<20); err == nil || !strings.Contains(err.Error(), "space exceeded") {
			return fmt.Errorf("no quota: %w", err)
		}
		return nil
	})
	within(t, func() error { // whichever has stored the last write first has the alarm
		var said []etcd.Content
		for _, m := range []string{"a", "b", "c"} {
			data, err := b.store.Get(t.Context(), etcd.StatusObject(m))
			if err != nil {
				return err
			}
			s, err := etcd.Parse[etcd.Status](data)
			if err != nil {
				return err
			}
			if slices.Equal(s.Store.Alarms, []string{etcd.NoSpace}) && s.Store.Quota == quota {
				return nil
			}
			said = append(said, s.Store)
		}
		return fmt.Errorf("no status has the alarm: %+v", said)
	})
	if _, err := b.seat("a").client().Lock(t.Context(), "x", time.Minute); !errors.Is(err, member.ErrNoSpace) {
		t.Errorf("a lock at the quota: %v, want %v", err, member.ErrNoSpace)
	}
	leader := b.leader()
	answer := b.order(1, etcd.Order{Verb: etcd.AskDefrag})
	t.Logf("%+v", answer)
	if answer.Error != "" || !strings.HasPrefix(answer.Done[0], "compacted") || !strings.HasPrefix(answer.Done[3], "defragmented member "+leader+",") || !strings.HasPrefix(answer.Done[4], "ended the alarm") {
		t.Errorf("answer %+v, leader %s", answer, leader)
	}
	for _, m := range []string{"a", "b", "c"} {
		if s, err := b.seat(m).client().Status(t.Context()); err != nil || len(s.Alarms) > 0 || s.Size > quota/2 {
			t.Errorf("%s: %+v, %v", m, s, err)
		}
		if err := b.put(m, "key", 1); err != nil {
			t.Error(err)
		}
	}
}

// TestScale takes a real cluster from three to five and back to three; the leader is among those that go. Who was removed does
// not come back.
func TestScale(t *testing.T) {
	b := newBench(t, []string{"a", "b", "c"})
	for i, m := range []string{"d", "e"} {
		b.boot(m, "i-"+m, nil)
		within(t, func() error { return b.voters("a", 4+i) })
	}
	list, err := b.seat("a").client().Members(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	idOf := func(name string) etcd.ID {
		i := slices.IndexFunc(list.Members, func(m etcd.Member) bool { return m.Name == name })
		return list.Members[i].ID
	}
	gone := []string{b.leader()}
	for _, m := range []string{"e", "d"} {
		if m != gone[0] && len(gone) < 2 {
			gone = append(gone, m)
		}
	}
	left := slices.DeleteFunc([]string{"a", "b", "c", "d", "e"}, func(m string) bool { return slices.Contains(gone, m) })
	for i, m := range gone {
		answer := b.order(i+1, etcd.Order{Verb: etcd.AskRemove, Member: m, ID: idOf(m), Place: "i-" + m})
		t.Logf("%+v", answer)
		if answer.Error != "" {
			t.Errorf("removing %s: %+v", m, answer)
		}
		within(t, func() error { return b.voters(left[0], 4-i) })
		within(t, func() error { // its machine waits, and says so
			data, err := b.store.Get(t.Context(), etcd.StatusObject(m))
			if err != nil {
				return err
			}
			s, err := etcd.Parse[etcd.Status](data)
			if err == nil && (s.Row != etcd.J1Empty || !strings.Contains(s.Why, "a person has removed this member")) {
				err = fmt.Errorf("%s says %+v", m, s)
			}
			return err
		})
	}
	time.Sleep(3 * time.Second) // a minute of the agents
	if err := b.voters(left[0], 3); err != nil {
		t.Error(err)
	}
	if err := b.put(left[0], "key", 1); err != nil {
		t.Error(err)
	}
}
