package backup

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/hardtack/packer-plugin-hardtack/images/imagestest/programs"
	"github.com/hardtack/packer-plugin-hardtack/pkg/base/clock"
	"github.com/hardtack/packer-plugin-hardtack/pkg/etcd"
	"github.com/hardtack/packer-plugin-hardtack/pkg/etcd/gateway"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/member"
)

// etcdServer is a real etcd of the image's version, by plain HTTP.
type etcdServer struct {
	*gateway.Client
	bin, peer, client string
	stop              func()
}

// voter is the server as a member that is asked.
type voter struct {
	member.Peer // nothing else is asked
	client      *gateway.Client
	// spoil changes the snapshot on its way.
	spoil func(io.Writer) io.Writer
}

func (v voter) Status(ctx context.Context) (member.Status, error) { return v.client.Status(ctx) }
func (v voter) Members(ctx context.Context) (etcd.List, error)    { return v.client.Members(ctx) }
func (v voter) Snapshot(ctx context.Context, w io.Writer) error {
	if v.spoil != nil {
		w = v.spoil(w)
	}
	return v.client.Snapshot(ctx, w)
}

func free2(t *testing.T) (client, peer string) {
	t.Helper()
	var urls [2]string
	for i := range urls {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		assert.NilError(t, err)
		defer func() { _ = l.Close() }() // until both are chosen
		urls[i] = "http://" + l.Addr().String()
	}
	return urls[0], urls[1]
}

// startEtcd starts a member named a on a data directory.
func startEtcd(t *testing.T, bin, data, peer string, more ...string) *etcdServer {
	t.Helper()
	client, other := free2(t)
	if peer == "" {
		peer = other
	}
	args := append([]string{"--name=a", "--data-dir=" + data, "--listen-client-urls=" + client, "--advertise-client-urls=" + client, "--listen-peer-urls=" + peer,
		"--initial-advertise-peer-urls=" + peer, "--initial-cluster=a=" + peer, "--log-level=error"}, more...)
	cmd := exec.CommandContext(t.Context(), filepath.Join(bin, "etcd"), args...)
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	assert.NilError(t, cmd.Start())
	stop := func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }
	t.Cleanup(func() {
		stop()
		if t.Failed() {
			t.Logf("etcd:\n%s", &log)
		}
	})
	c := gateway.New(gateway.Config{URL: client})
	t.Cleanup(c.Close)
	for end := time.Now().Add(time.Minute); c.Read(t.Context()) != nil; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("etcd does not start:\n%s", &log)
		}
	}
	return &etcdServer{Client: c, bin: bin, peer: peer, client: client, stop: stop}
}

func (s *etcdServer) ctl(t *testing.T, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), filepath.Join(s.bin, "etcdctl"), append([]string{"--endpoints=" + s.client}, args...)...).CombinedOutput()
	assert.NilError(t, err, "%s", out)
	return string(out)
}

// rig is a real etcd with some keys, and a keeper with a directory as its place.
type rig struct {
	*etcdServer
	place, scratch string
	keeper         *Keeper
}

func newRig(t *testing.T) *rig {
	t.Helper()
	lock := programs.DefaultLock(t)
	programs.NeedBuilt(t, lock, "etcd")
	dir := t.TempDir()
	programs.Install(t, dir, lock, "etcd")
	bin := filepath.Join(dir, programs.Bin)
	r := &rig{etcdServer: startEtcd(t, bin, filepath.Join(dir, "data"), ""), place: filepath.Join(dir, "place"), scratch: filepath.Join(dir, "scratch")}
	for i := range 20 {
		r.ctl(t, "put", "key"+string(rune('a'+i)), strings.Repeat("value", 1000))
	}
	r.ctl(t, "del", "keya")
	// As Kubernetes's events have one.
	lease := strings.Fields(r.ctl(t, "lease", "grant", "600"))[1]
	r.ctl(t, "put", "keyt", "value", "--lease="+lease)
	assert.NilError(t, os.Mkdir(r.place, 0o700))
	place, err := Open("dir:"+r.place, Options{Cluster: "demo"})
	assert.NilError(t, err)
	r.keeper = &Keeper{Place: place, Cluster: "demo", Scratch: r.scratch, Program: filepath.Join(bin, "etcdutl"), Clock: clock.System{}}
	return r
}

// files are the names in the place.
func (r *rig) files(t *testing.T) []string {
	t.Helper()
	names, err := r.keeper.Place.(dir).names(t.Context(), "demo/")
	assert.NilError(t, err)
	return names
}

// TestTakeAndRestore: what was taken from a real etcd is listed, and restored it is a cluster of its own with the same keys, a
// revision that nobody has seen, and no history.
func TestTakeAndRestore(t *testing.T) {
	r := newRig(t)
	ctx := t.Context()
	if b, err := r.keeper.Newest(ctx, 3); b != nil || err != nil {
		t.Fatalf("before the first: %v, %v", b, err)
	}
	assert.NilError(t, r.keeper.Take(ctx, 3, voter{client: r.Client}))
	list, err := r.keeper.Place.List(ctx)
	assert.NilError(t, err)
	assert.Equal(t, len(list), 1)
	status, err := r.Status(ctx)
	assert.NilError(t, err)
	o := list[0]
	if o.Epoch != 3 || o.Member != "a" || o.Revision != status.Revision || o.Keys == 0 || o.ClusterID != status.ClusterID || o.Version != status.Version || o.Size == 0 || time.Since(o.Taken) > time.Minute {
		t.Errorf("%+v of %+v", o, status)
	}
	newest, err := r.keeper.Newest(ctx, 3)
	assert.NilError(t, err)
	assert.DeepEqual(t, newest, o.Backup())
	if _, err := os.Stat(r.scratch); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the scratch directory is left: %v", err)
	}

	_, peer := free2(t)
	restore := o.Restore()
	begin := etcd.Begin{Token: "new", Members: []etcd.Peer{{Name: "a", URL: peer}}, Restore: &restore}
	to := filepath.Join(t.TempDir(), "restore", "4")
	assert.NilError(t, r.keeper.Restore(ctx, begin, "a", to))
	again := startEtcd(t, r.bin, to, peer, "--initial-cluster-token=new")
	if got := again.ctl(t, "get", "--print-value-only", "keyb"); strings.TrimSpace(got) != strings.Repeat("value", 1000) {
		t.Errorf("keyb is %.20q", got)
	}
	if got := again.ctl(t, "get", "keya"); got != "" {
		t.Errorf("what was deleted is back: %q", got)
	}
	now, err := again.Status(ctx)
	assert.NilError(t, err)
	if now.Revision < o.Revision+bump || now.ClusterID != etcd.ClusterID("new", begin.Members) {
		t.Errorf("restored: %+v", now)
	}
	out, err := exec.CommandContext(ctx, filepath.Join(r.bin, "etcdctl"), "--endpoints="+again.client, "get", "keyb", "--rev=5").CombinedOutput()
	if err == nil || !strings.Contains(string(out), "compacted") {
		t.Errorf("an old revision can be read: %s, %v", out, err)
	}
}

// TestFaults: what goes wrong on the way leaves no backup, and says why.
func TestFaults(t *testing.T) {
	r := newRig(t)
	ctx := t.Context()
	take := func(spoil func(io.Writer) io.Writer) error {
		return r.keeper.Take(ctx, 1, voter{client: r.Client, spoil: spoil})
	}
	for want, spoil := range map[string]func(io.Writer) io.Writer{
		"is not whole": func(w io.Writer) io.Writer { return &shorter{w, 20000} },
		"not whole":    func(w io.Writer) io.Writer { return &flipper{w, 9000} },
		"no space":     func(io.Writer) io.Writer { return full{} },
	} {
		if err := take(spoil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	if names := r.files(t); len(names) > 0 {
		t.Errorf("something is in the place: %v", names)
	}

	// A snapshot whose digest is right and whose data are not: only the trial finds it.
	forged := func(w io.Writer) io.Writer { return &forger{w: w} }
	if err := take(forged); err == nil || !strings.Contains(err.Error(), "etcdutl") {
		t.Errorf("data that are none: %v", err)
	}
	r.keeper.Place = lost{r.keeper.Place}
	if err := take(nil); err == nil || !strings.Contains(err.Error(), "lost") {
		t.Errorf("an upload that is lost: %v", err)
	}
	if b, err := r.keeper.Newest(ctx, 1); b != nil || err != nil {
		t.Errorf("after nothing but failures there is %v, %v", b, err)
	}
	r.keeper.Place = r.keeper.Place.(lost).Place
	time.Sleep(time.Second) // an upload that is lost after it arrived has its name, which has the second in it
	assert.NilError(t, take(nil))
	b, err := r.keeper.Newest(ctx, 1)
	assert.NilError(t, err)

	// The place changes behind our back.
	begin := etcd.Begin{Token: "t", Members: []etcd.Peer{{Name: "a", URL: "http://127.0.0.1:1"}}, Restore: &b.Restore}
	file := filepath.Join(r.place, filepath.FromSlash(b.Object))
	data, err := os.ReadFile(file)
	assert.NilError(t, err)
	data[len(data)/2] ^= 1
	assert.NilError(t, os.WriteFile(file, data, 0o600))
	to := filepath.Join(t.TempDir(), "1")
	if err := r.keeper.Restore(ctx, begin, "a", to); err == nil || !strings.Contains(err.Error(), "SHA-256") {
		t.Errorf("restoring a flipped byte: %v", err)
	}
	assert.NilError(t, os.Remove(file))
	if err := r.keeper.Restore(ctx, begin, "a", to); !errors.Is(err, ErrNotFound) {
		t.Errorf("restoring what is gone: %v", err)
	}
	if _, err := os.Stat(to); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a failed restore leaves its directory: %v", err)
	}
}

// shorter loses all after n bytes, unnoticed.
type shorter struct {
	w io.Writer
	n int
}

func (s *shorter) Write(p []byte) (int, error) {
	keep := p[:min(len(p), s.n)]
	s.n -= len(keep)
	_, err := s.w.Write(keep)
	return len(p), err
}

// flipper changes the nth byte.
type flipper struct {
	w io.Writer
	n int
}

func (f *flipper) Write(p []byte) (int, error) {
	p = bytes.Clone(p)
	if f.n >= 0 && f.n < len(p) {
		p[f.n] ^= 1
	}
	f.n -= len(p)
	return f.w.Write(p)
}

// full is a disk without space.
type full struct{}

func (full) Write([]byte) (int, error) { return 0, syscall.ENOSPC }

// forger replaces the snapshot by nonsense with a digest of its own.
type forger struct {
	w    io.Writer
	done bool
}

func (f *forger) Write(p []byte) (int, error) {
	if f.done {
		return len(p), nil
	}
	f.done = true
	nonsense := bytes.Repeat([]byte{7}, 64*sector)
	sum := sha256Of(nonsense)
	_, err := f.w.Write(append(nonsense, sum[:]...))
	return len(p), err
}

// lost is a place whose connection ends after the snapshot and before its description.
type lost struct{ Place }

func (l lost) Put(ctx context.Context, o Object, file string) error {
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	snapshot := content{open: func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(data)), nil }, size: o.Size, sha256: o.SHA256}
	return errors.Join(l.Place.(dir).put(ctx, o.Name, snapshot), errors.New("the connection was lost"))
}

// TestRoom: a disk without room for the trial is found before anything is written.
func TestRoom(t *testing.T) {
	k := &Keeper{Scratch: filepath.Join(t.TempDir(), "scratch")}
	if err := k.room(1 << 60); err == nil || !strings.Contains(err.Error(), "etcd.size") {
		t.Errorf("%v", err)
	}
	assert.NilError(t, k.room(0))
}

// TestTwoLeaders: of two that store under one name the first wins, whole; and what it has stored is described by itself alone.
func TestTwoLeaders(t *testing.T) {
	for name, place := range places(t) {
		t.Run(name, func(t *testing.T) {
			a, b := snapshotFile(t, "first"), snapshotFile(t, "second")
			errs := make(chan error, 2)
			for _, s := range []snapshot{a, b} {
				go func() { errs <- place.Put(t.Context(), s.Object, s.file) }()
			}
			first, second := <-errs, <-errs
			if (first == nil) == (second == nil) || !errors.Is(errors.Join(first, second), ErrExists) {
				t.Fatalf("%v and %v", first, second)
			}
			list, err := place.List(t.Context())
			assert.NilError(t, err)
			assert.Equal(t, len(list), 1)
			in, err := place.Open(t.Context(), list[0].Name)
			assert.NilError(t, err)
			data, err := io.ReadAll(in)
			assert.NilError(t, errors.Join(err, in.Close()))
			sum := sha256Of(data)
			assert.Equal(t, list[0].SHA256, hexOf(sum[:]))
		})
	}
}

// TestNames: names say what they are, in the order of time.
func TestNames(t *testing.T) {
	at := time.Date(2026, 11, 23, 1, 2, 3, 0, time.FixedZone("", 3600))
	name := Name("demo", 12, at, 345)
	assert.Equal(t, name, "demo/12/20261123T000203Z-345.db")
	n, ok := parseName(name)
	if !ok || n.epoch != 12 || n.revision != 345 || !n.taken.Equal(at) {
		t.Errorf("%+v, %v", n, ok)
	}
	for _, wrong := range []string{"", "demo/12/x.db", name + "/x", "demo/012/20261123T000203Z-345.db", "../12/20261123T000203Z-345", name + ".json"} {
		if _, ok := parseName(wrong); ok {
			t.Errorf("%q is a name", wrong)
		}
	}
	text, err := json.Marshal(Object{Name: name})
	assert.NilError(t, err)
	assert.Assert(t, strings.Contains(string(text), `"cluster_id"`))
}
