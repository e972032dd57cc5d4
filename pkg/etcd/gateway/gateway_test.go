package gateway

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/images/imagestest/programs"
	"github.com/hardtack/packer-plugin-hardtack/pkg/etcd"
	"github.com/hardtack/packer-plugin-hardtack/pkg/etcd/etcdtest"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/member"
)

// TestRealEtcd takes a real member of the lock's version through everything that an agent asks of it.
func TestRealEtcd(t *testing.T) {
	l := programs.DefaultLock(t)
	programs.NeedBuilt(t, l, "etcd")
	dir := t.TempDir()
	programs.Install(t, dir, l, "etcd")
	_, conf := etcdtest.Certificate(t, dir, nil)
	ctx := t.Context()

	a := start(t, dir, "a", "new", "")
	c := New(Config{URL: a.client, TLS: conf})
	defer c.Close()
	within(t, time.Minute, func() error { return c.Read(ctx) })
	list, err := c.Members(ctx)
	if err != nil || len(list.Members) != 1 || list.Members[0].Name != "a" || !list.Members[0].Started || list.Members[0].PeerURL != a.peer {
		t.Fatalf("members %+v, %v", list, err)
	}
	peers := []etcd.Peer{{Name: "a", URL: a.peer}}
	if want := etcd.ClusterID("token", peers); list.ClusterID != want || list.Members[0].ID != etcd.MemberID("token", a.peer) {
		t.Errorf("etcd says %s and %s; computed are %s and %s", list.ClusterID, list.Members[0].ID, want, etcd.MemberID("token", a.peer))
	}
	status, err := c.Status(ctx)
	if err != nil || status.ID != list.Members[0].ID || status.Leader != status.ID || status.Learner || status.Applied == 0 || status.Size == 0 || status.Version == "" {
		t.Errorf("status %+v, %v", status, err)
	}
	if len(status.Alarms) > 0 {
		t.Errorf("alarms %v", status.Alarms)
	}
	t.Run("lock", func(t *testing.T) { lock(t, c) })
	t.Run("snapshot", func(t *testing.T) { snapshot(t, c, dir) })
	if err := c.Defragment(ctx); err != nil {
		t.Error(err)
	}
	t.Run("learner", func(t *testing.T) { learner(t, c, dir, a) })
}

func lock(t *testing.T, c *Client) {
	t.Helper()
	ctx := t.Context()
	lease, err := c.Lock(ctx, "i-1", time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Lock(ctx, "i-2", time.Minute); !errors.Is(err, member.ErrHeld) {
		t.Errorf("a second holder: %v, want %v", err, member.ErrHeld)
	}
	if err := c.Renew(ctx, lease); err != nil {
		t.Error(err)
	}
	for range 2 { // the second finds it gone
		if err := c.Unlock(ctx, lease); err != nil {
			t.Error(err)
		}
	}
	if err := c.Renew(ctx, lease); !errors.Is(err, member.ErrHeld) {
		t.Errorf("renewing a lease that has ended: %v, want %v", err, member.ErrHeld)
	}
	again, err := c.Lock(ctx, "i-2", time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Unlock(ctx, again); err != nil {
		t.Error(err)
	}
}

func snapshot(t *testing.T, c *Client, dir string) {
	t.Helper()
	var b bytes.Buffer
	if err := c.Snapshot(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
	data := b.Bytes()
	if len(data)%512 != sha256.Size {
		t.Fatalf("a snapshot of %d bytes: no database with a digest", len(data))
	}
	end := len(data) - sha256.Size
	if sum := sha256.Sum256(data[:end]); !bytes.Equal(sum[:], data[end:]) {
		t.Error("the snapshot does not have the digest at its end")
	}
	file := filepath.Join(dir, "snapshot.db")
	if err := os.WriteFile(file, data, 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), filepath.Join(dir, programs.Bin, "etcdutl"), "snapshot", "status", file, "-w", "json").Output()
	var status struct {
		Revision int64 `json:"revision"`
	}
	if err := errors.Join(err, json.Unmarshal(out, &status)); err != nil || status.Revision == 0 {
		t.Errorf("etcdutl says %s, %v", out, err)
	}
}

func learner(t *testing.T, c *Client, dir string, a server) {
	t.Helper()
	ctx := t.Context()
	b := addresses(t)
	var id etcd.ID
	within(t, time.Minute, func() (err error) {
		id, err = c.AddLearner(ctx, b.peer)
		if err != nil && !errors.Is(err, member.ErrUnhealthy) {
			t.Fatal(err)
		}
		return err
	})
	if err := c.Promote(ctx, id); !errors.Is(err, member.ErrNotReady) {
		t.Errorf("promoting one that never ran: %v, want %v", err, member.ErrNotReady)
	}
	b = run(t, dir, "b", "existing", "a="+a.peer+",", b)
	within(t, time.Minute, func() error {
		err := c.Promote(ctx, id)
		if err != nil && !errors.Is(err, member.ErrNotReady) && !errors.Is(err, member.ErrUnhealthy) {
			t.Fatal(err)
		}
		return err
	})
	for range 2 { // the second finds it gone
		within(t, time.Minute, func() error { return c.Remove(ctx, id) })
	}
	if list, err := c.Members(ctx); err != nil || len(list.Members) != 1 {
		t.Errorf("members %+v, %v", list, err)
	}
}

func within(t *testing.T, limit time.Duration, f func() error) {
	t.Helper()
	var err error
	for end := time.Now().Add(limit); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		if err = f(); err == nil {
			return
		}
	}
	t.Fatal(err)
}

type server struct{ client, peer string }

func addresses(t *testing.T) server {
	t.Helper()
	var urls [2]string
	for i := range urls {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = l.Close() }() // until both are chosen
		urls[i] = "https://" + l.Addr().String()
	}
	return server{urls[0], urls[1]}
}

func start(t *testing.T, dir, name, state, others string) server {
	t.Helper()
	return run(t, dir, name, state, others, addresses(t))
}

func run(t *testing.T, dir, name, state, others string, s server) server {
	t.Helper()
	crt, key := filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	cmd := exec.CommandContext(t.Context(), filepath.Join(dir, programs.Bin, "etcd"), "--name="+name, "--data-dir="+filepath.Join(dir, "data-"+name),
		"--listen-client-urls="+s.client, "--advertise-client-urls="+s.client, "--listen-peer-urls="+s.peer, "--initial-advertise-peer-urls="+s.peer,
		"--initial-cluster="+others+name+"="+s.peer, "--initial-cluster-state="+state, "--initial-cluster-token=token", "--log-level=error",
		"--cert-file="+crt, "--key-file="+key, "--trusted-ca-file="+crt, "--client-cert-auth",
		"--peer-cert-file="+crt, "--peer-key-file="+key, "--peer-trusted-ca-file="+crt, "--peer-client-cert-auth")
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("etcd %s:\n%s", name, &log)
		}
	})
	return s
}
