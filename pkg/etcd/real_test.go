package etcd_test

import (
	"bytes"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/images/imagestest/programs"
	"github.com/hardtack/packer-plugin-hardtack/pkg/etcd"
	"github.com/hardtack/packer-plugin-hardtack/pkg/etcd/gateway"
)

// TestRealMembers starts real members with the environments of the decisions: two of three for the first time, then one
// again with its log, and then without.
func TestRealMembers(t *testing.T) {
	l := programs.DefaultLock(t)
	programs.NeedBuilt(t, l, "etcd")
	dir := t.TempDir()
	programs.Install(t, dir, l, "etcd")
	r := &realCluster{dir: dir, begin: etcd.Begin{Token: etcd.NewToken()}}
	for _, name := range []string{"a", "b", "c"} {
		r.begin.Members = append(r.begin.Members, etcd.Peer{Name: name, URL: "http://" + free(t, "127.0.0.1")})
	}
	r.open, r.closed = free(t, "127.0.0.1"), free(t, etcd.ClosedAddress)

	f := r.facts("a")
	f.Store.Started = &etcd.Started{Instance: f.Instance, Attempt: "mine"}
	f.Attempt = "mine"
	first := decided(t, f, etcd.N1Start)
	a := r.start(t, "a", first.Environment(f))
	b := r.facts("b")
	b.Store.Started, b.Attempt = f.Store.Started, f.Attempt
	r.start(t, "b", decided(t, b, etcd.N1Start).Environment(b))

	list := r.members(t, r.closed, 2)
	if want := etcd.ClusterID(r.begin.Token, r.begin.Members); list.ClusterID != want {
		t.Errorf("etcd says cluster %s; computed is %s", list.ClusterID, want)
	}
	for _, p := range r.begin.Members {
		i := slices.IndexFunc(list.Members, func(m etcd.Member) bool { return m.Name == p.Name })
		if i < 0 {
			t.Errorf("member %s, which may not have run, has no name in %+v", p.Name, list)
		} else if m := list.Members[i]; m.ID != etcd.MemberID(r.begin.Token, p.URL) || m.Started != (p.Name != "c") {
			t.Errorf("etcd says %+v for %+v", m, p)
		}
	}
	if conn, err := net.Dial("tcp", r.open); err == nil {
		_ = conn.Close()
		t.Error("a closed member has clients")
	}
	id := etcd.MemberID(r.begin.Token, f.PeerURL)
	f.Disk.WAL = true
	f.Disk.Marker = &etcd.Marker{Cluster: "demo", Member: "a", Epoch: 1, MemberID: id, ClusterID: list.ClusterID}
	f.Etcd, f.List = etcd.Process{Running: true, Reads: true}, &list
	decided(t, f, etcd.N4Wait)
	f.Etcd.ReadsFor = etcd.FormAfter
	decided(t, f, etcd.N3Form)

	f.Store.Outcome = &etcd.Outcome{Formed: &etcd.Formed{ClusterID: list.ClusterID}}
	opened := decided(t, f, etcd.N5Open)
	a.end(t)
	a = r.start(t, "a", opened.Environment(f))
	if again := r.members(t, r.open, 2); again.ClusterID != list.ClusterID {
		t.Errorf("it is in cluster %s with its log, and was in %s", again.ClusterID, list.ClusterID)
	}
	a.end(t)
	if err := os.RemoveAll(filepath.Join(dir, "data-a")); err != nil {
		t.Fatal(err)
	}
	a = r.start(t, "a", opened.Environment(f))
	select {
	case <-a.ended:
		if log := a.log.String(); !strings.Contains(log, "peer") {
			t.Errorf("it ended, not because there is no peer to ask:\n%s", log)
		}
	case <-time.After(time.Minute):
		t.Error("a sealed member runs without its log")
	}
}

type realCluster struct {
	dir          string
	begin        etcd.Begin
	open, closed string // where member a has clients
}

// facts are those of a member that stands still, with its data on its machine.
func (r *realCluster) facts(name string) etcd.Facts {
	i := slices.IndexFunc(r.begin.Members, func(p etcd.Peer) bool { return p.Name == name })
	return etcd.Facts{Cluster: "demo", Member: name, PeerURL: r.begin.Members[i].URL, Instance: "i-" + name, Storage: etcd.StorageMachine,
		Disk: etcd.Disk{Mounted: true}, Store: etcd.Store{Answers: true, Epoch: 1, Begin: &r.begin}}
}

func decided(t *testing.T, f etcd.Facts, want etcd.Row) etcd.Action {
	t.Helper()
	a := etcd.Decide(f)
	if a.Row != want {
		t.Fatalf("row %s, want %s: %+v", a.Row, want, f)
	}
	return a
}

type realMember struct {
	cmd   *exec.Cmd
	ended chan struct{}
	log   bytes.Buffer
}

// start runs etcd with what a role file sets, and with the environment of a decision after it. The closed address is on a
// free port, without TLS.
func (r *realCluster) start(t *testing.T, name string, environment []string) *realMember {
	t.Helper()
	open, closed := r.open, r.closed
	if name != "a" {
		open, closed = free(t, "127.0.0.1"), free(t, etcd.ClosedAddress)
	}
	peer := r.facts(name).PeerURL
	env := append(os.Environ(), "ETCD_DATA_DIR="+filepath.Join(r.dir, "data-"+name), "ETCD_LISTEN_CLIENT_URLS=http://"+open, "ETCD_ADVERTISE_CLIENT_URLS=http://"+open,
		"ETCD_LISTEN_PEER_URLS="+peer, "ETCD_INITIAL_ADVERTISE_PEER_URLS="+peer)
	for _, line := range environment {
		env = append(env, strings.ReplaceAll(line, etcd.ClosedURL(), "http://"+closed))
	}
	m := &realMember{cmd: exec.Command(filepath.Join(r.dir, programs.Bin, "etcd")), ended: make(chan struct{})}
	m.cmd.Env, m.cmd.Stdout, m.cmd.Stderr = env, &m.log, &m.log
	m.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := m.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = m.cmd.Wait()
		close(m.ended)
	}()
	t.Cleanup(func() {
		m.end(t)
		if t.Failed() {
			t.Logf("etcd %s:\n%s", name, &m.log)
		}
	})
	return m
}

func (m *realMember) end(t *testing.T) {
	t.Helper()
	if err := m.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		t.Error(err)
	}
	<-m.ended
}

// members asks until the list has so many members that have started.
func (r *realCluster) members(t *testing.T, address string, started int) etcd.List {
	t.Helper()
	var list etcd.List
	c := gateway.New(gateway.Config{URL: "http://" + address})
	defer c.Close()
	var err error
	for end := time.Now().Add(2 * time.Minute); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		if list, err = c.Members(t.Context()); err == nil {
			n := 0
			for _, m := range list.Members {
				if m.Started {
					n++
				}
			}
			if n >= started {
				return list
			}
		}
	}
	t.Fatalf("members %+v, %v", list, err)
	return list
}

func free(t *testing.T, host string) string {
	t.Helper()
	l, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}
