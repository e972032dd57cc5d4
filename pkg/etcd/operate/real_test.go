package operate_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/run"

	"github.com/hardtack/packer-plugin-hardtack/pkg/etcd"
	"github.com/hardtack/packer-plugin-hardtack/pkg/etcd/backup"
	"github.com/hardtack/packer-plugin-hardtack/pkg/etcd/etcdtest"
	"github.com/hardtack/packer-plugin-hardtack/pkg/etcd/gateway"
	"github.com/hardtack/packer-plugin-hardtack/pkg/etcd/operate"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/machine"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/member"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki/store"
)

// realWorld is a cluster of real members, each with an address of the loopback of its own, and with the agent's own loop.
type realWorld struct {
	t     *testing.T
	dir   string
	bin   string
	clock etcdtest.Clock
	store store.Store
	place backup.Place
	// every is how old the newest backup becomes.
	every time.Duration
	bare  bool // the machines know no place for backups
	*operate.Cluster
	seats map[string]*seat
}

// seat is a member's machine, which is replaced by an empty one.
type seat struct {
	*etcdtest.Process
	w        *realWorld
	machines int
	stop     context.CancelFunc
	done     chan struct{}
	log      run.Log
}

// newRealWorld has machines whose clock goes so many times as fast as etcd's.
func newRealWorld(t *testing.T, pace int) *realWorld {
	t.Helper()
	w := &realWorld{t: t, dir: t.TempDir(), clock: etcdtest.NewClock(pace), seats: map[string]*seat{}, every: 1000 * time.Hour}
	w.bin = etcdtest.Programs(t, w.dir)
	for _, name := range []string{"store", "backups"} {
		if err := os.Mkdir(filepath.Join(w.dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	w.store = store.NewDir(filepath.Join(w.dir, "store"))
	w.create(pki.PublicInfo, nil)
	var err error
	if w.place, err = backup.Open("dir:"+filepath.Join(w.dir, "backups"), backup.Options{Cluster: "demo"}); err != nil {
		t.Fatal(err)
	}
	w.Cluster = &operate.Cluster{Name: "demo", Storage: machine.StorageMachine, Records: w.store, Clock: w.clock, Backups: realPlace{w.place}}
	for i, name := range []string{"a", "b", "c"} {
		s := &seat{w: w}
		s.Process = &etcdtest.Process{Bin: w.bin, Name: name, Address: etcdtest.Address(10 + i), Closed: etcdtest.Address(20 + i), Log: &s.log}
		w.seats[name] = s
		w.Members = append(w.Members, name)
		w.Peers = append(w.Peers, etcd.Peer{Name: name, URL: s.PeerURL()})
		t.Cleanup(s.end)
	}
	return w
}

// realPlace is the place as the operator's commands read it.
type realPlace struct{ backup.Place }

func (p realPlace) List(ctx context.Context) (list []operate.Object, err error) {
	found, err := p.Place.List(ctx)
	for _, o := range found {
		list = append(list, operate.Object(o))
	}
	return list, err
}

func (w *realWorld) create(object string, content []byte) {
	w.t.Helper()
	if err := w.store.Create(w.t.Context(), object, content); err != nil {
		w.t.Fatal(err)
	}
}

// launch starts the agent of a seat on a machine that has nothing.
func (s *seat) launch() {
	s.machines++
	s.run(fmt.Sprintf("i-%s-%d", s.Name, s.machines))
}

func (s *seat) run(instance string) {
	w := s.w
	home := filepath.Join(w.dir, instance)
	if err := os.MkdirAll(home, 0o755); err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(w.t.Context()))
	s.stop, s.done = cancel, make(chan struct{})
	s.Environment = filepath.Join(home, "environment")
	c := member.Config{
		Cluster: "demo", Member: s.Name, PeerURL: s.PeerURL(), Instance: instance, Storage: etcd.StorageMachine,
		Dir: home, Environment: s.Environment, Own: s.ClientURL(),
		Records: w.store, Service: s, Clock: w.clock,
		Peer: func(url string) member.Peer {
			if url == etcd.ClosedURL() {
				url = s.ClosedURL()
			}
			return w.clock.Hasty(gateway.New(gateway.Config{URL: url}))
		},
		BackupEvery: w.every,
		Say: func(r member.Report) {
			fmt.Fprintf(&s.log, "%s %s %s: %s %v\n", instance, r.Action.Row, r.Step, r.Why.Cause, r.Err)
		},
	}
	if !w.bare {
		c.Backups = &backup.Keeper{Place: w.place, Cluster: "demo", Scratch: filepath.Join(home, "scratch"), Program: filepath.Join(s.Bin, "etcdutl"), Clock: w.clock}
	}
	m := member.New(c)
	go func() {
		defer close(s.done)
		_ = m.Run(ctx)
	}()
}

// end ends the machine, as a loss of power does.
func (s *seat) end() {
	if s.stop != nil {
		s.stop()
		<-s.done
		s.stop = nil
	}
	s.Kill()
	if s.w.t.Failed() {
		s.w.t.Logf("%s:\n%s", s.Name, &s.log)
	}
}

// until waits for something that the machines do by themselves.
func (w *realWorld) until(what string, done func() bool) {
	w.t.Helper()
	for end := time.Now().Add(100 * time.Second); !done(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			w.t.Fatal("did not happen: " + what)
		}
	}
}

// ask asks a member by etcd's JSON gateway.
func (s *seat) ask(path, body string, into any) error {
	req, err := http.NewRequestWithContext(s.w.t.Context(), http.MethodPost, s.ClientURL()+path, strings.NewReader(body))
	if err != nil {
		return err
	}
	client := http.Client{Timeout: 10 * time.Second}
	out, err := client.Do(req)
	if err != nil {
		return err
	}
	defer out.Body.Close()
	if out.StatusCode != http.StatusOK {
		return errors.New(out.Status)
	}
	return json.NewDecoder(out.Body).Decode(into)
}

func b64(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }

// put writes a key and returns the revision.
func (s *seat) put(key string) (int64, error) {
	var out struct {
		Header struct {
			Revision int64 `json:",string"`
		}
	}
	err := s.ask("/v3/kv/put", fmt.Sprintf(`{"key":%q,"value":%q}`, b64(key), b64("v")), &out)
	return out.Header.Revision, err
}

// keys counts the keys with a prefix, by a linearizable read, and returns the revision.
func (s *seat) keys(prefix string) (count, revision int64, err error) {
	var out struct {
		Header struct {
			Revision int64 `json:",string"`
		}
		Count int64 `json:",string"`
	}
	err = s.ask("/v3/kv/range", fmt.Sprintf(`{"key":%q,"range_end":%q,"count_only":true}`, b64(prefix), b64(prefix+"~")), &out)
	return out.Count, out.Header.Revision, err
}

// watch watches from a revision, and returns the revision up to which etcd says that there is nothing any more; 0 if the watch
// goes on.
func (s *seat) watch(revision int64) (compacted int64, err error) {
	ctx, cancel := context.WithTimeout(s.w.t.Context(), 10*time.Second)
	defer cancel()
	body := fmt.Sprintf(`{"create_request":{"key":%q,"start_revision":"%d"}}`, b64("k"), revision)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.ClientURL()+"/v3/watch", strings.NewReader(body))
	if err != nil {
		return 0, err
	}
	out, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	defer out.Body.Close()
	for answers := json.NewDecoder(out.Body); ; {
		var answer struct {
			Result struct {
				Canceled        bool
				CompactRevision int64 `json:"compact_revision,string"`
			}
		}
		if err := answers.Decode(&answer); err != nil || answer.Result.Canceled {
			return answer.Result.CompactRevision, err
		}
	}
}

func (w *realWorld) mustPut(name, key string) (revision int64) {
	w.t.Helper()
	w.until(name+" takes writes", func() bool {
		var err error
		revision, err = w.seats[name].put(key)
		return err == nil
	})
	return revision
}

// TestRealRestore: a majority of the data is lost; the epoch that starts from a backup has everything up to that, at
// revisions that no watch of before continues at, and the survivor's later writes are gone.
func TestRealRestore(t *testing.T) {
	w := newRealWorld(t, etcdtest.Pace)
	w.create(etcd.BeginObject(1), etcd.Encode(etcd.Begin{Token: etcd.NewToken(), Members: w.Peers}))
	for _, s := range w.seats {
		s.launch()
	}
	var last int64
	for i := range 20 {
		last = w.mustPut("a", fmt.Sprint("k", i))
	}
	asked, err := w.Backup(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	if err := w.AwaitOrder(ctx, asked, nil); err != nil {
		t.Fatal(err)
	}
	list, err := w.ListBackups(ctx)
	if err != nil || len(list) == 0 || list[0].Revision < last || list[0].Epoch != 1 { // not one that was begun before
		t.Fatalf("%v, %+v", err, list)
	}
	taken := list[0]
	for i := range 10 {
		last = w.mustPut("b", fmt.Sprint("late", i))
	}
	before, err := w.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"b", "c"} {
		w.seats[name].end()
		w.seats[name].launch()
	}
	w.until("the survivor has no quorum", func() bool { _, err := w.seats["a"].put("no"); return err != nil })

	o := operate.RestoreOptions{From: operate.Latest, LoseSince: taken.Taken}
	w.until("the reports of b and c are old", func() bool {
		_, err = w.Restore(t.Context(), operate.RestoreOptions{From: operate.Latest, DryRun: true, LoseSince: taken.Taken})
		return err != nil && strings.Contains(err.Error(), "b: ") && strings.Contains(err.Error(), "c: ")
	})
	if _, err := w.Restore(t.Context(), o); err == nil || !strings.Contains(err.Error(), "a quorum of epoch 1 may still run") {
		t.Fatalf("two of three are blind: %v", err)
	}
	o.Off = []string{"b", "c"}
	r, err := w.Restore(t.Context(), o)
	if err != nil || !r.Begun || r.Epoch != 2 {
		t.Fatalf("%v, %+v", err, r)
	}
	p, err := w.Follow(ctx, r.Backup, func(p operate.Progress) { t.Logf("%+v", p) })
	if err != nil || p.Epoch != 2 {
		t.Fatalf("%v, %+v", err, p)
	}
	for name, s := range w.seats {
		w.until(name+" serves", func() bool { _, _, err := s.keys("k"); return err == nil })
		count, revision, err := s.keys("k")
		if err != nil || count != 20 || revision < taken.Revision+1_000_000_000 {
			t.Errorf("%s: %d keys at revision %d, %v; the backup had 20 at %d", name, count, revision, err, taken.Revision)
		}
		if count, _, err := s.keys("late"); err != nil || count != 0 {
			t.Errorf("%s: %d keys of after the backup, %v", name, count, err)
		}
		if compacted, err := s.watch(last + 1); err != nil || compacted <= last {
			t.Errorf("%s: a watch of before goes on: compacted up to %d, %v", name, compacted, err)
		}
	}
	after, err := w.Status(t.Context())
	if err != nil || after.ClusterID == before.ClusterID || after.Epoch != 2 {
		t.Errorf("%v: cluster %s, and before %s", err, after.ClusterID, before.ClusterID)
	}
	again, err := w.Restore(t.Context(), o)
	if err != nil || again.Begun || !again.Formed {
		t.Errorf("again: %v, %+v", err, again)
	}
}

// TestRealAdopt: members that were started as before there were records are the cluster that is computed, and a machine
// without data then joins them.
func TestRealAdopt(t *testing.T) {
	w := newRealWorld(t, etcdtest.Pace)
	var cluster []string
	for _, p := range w.Peers {
		cluster = append(cluster, p.Name+"="+p.URL)
	}
	for name, s := range w.seats {
		if err := s.Launch("ETCD_DATA_DIR="+filepath.Join(w.dir, "old-"+name), "ETCD_INITIAL_CLUSTER="+strings.Join(cluster, ","), "ETCD_INITIAL_CLUSTER_TOKEN=demo"); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 5 {
		w.mustPut("a", fmt.Sprint("k", i))
	}
	list, err := gateway.New(gateway.Config{URL: w.seats["a"].ClientURL()}).Members(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if out, err := w.Adopt(t.Context(), operate.AdoptOptions{ClusterID: list.ClusterID + 1}); err == nil {
		t.Errorf("another cluster: %+v", out)
	}
	out, err := w.Adopt(t.Context(), operate.AdoptOptions{ClusterID: list.ClusterID})
	if err != nil || !out.Made {
		t.Fatalf("%v, %+v; etcd says %+v", err, out, list)
	}
	for _, m := range list.Members {
		if out.Members[m.Name] != m.ID {
			t.Errorf("member %s is %s, and not %s", m.Name, m.ID, out.Members[m.Name])
		}
	}
	c := w.seats["c"]
	c.end()
	c.launch()
	w.until("c is a voter again", func() bool {
		list, err := gateway.New(gateway.Config{URL: c.ClientURL()}).Members(t.Context())
		n := 0
		for _, m := range list.Members {
			if m.Started && !m.Learner {
				n++
			}
		}
		return err == nil && n == 3
	})
	if count, _, err := c.keys("k"); err != nil || count != 5 {
		t.Errorf("%d keys, %v", count, err)
	}
}
