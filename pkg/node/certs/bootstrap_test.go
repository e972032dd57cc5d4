package certs_test

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/node/certs"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/machine"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/reason"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki/store"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

func gidOf(info fs.FileInfo) int {
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		return int(s.Gid)
	}
	return -1
}

// publish does what a master's controller does.
func (b *bench) publish(t *testing.T) pki.Token {
	t.Helper()
	token := pki.NewToken(b.now)
	data, err := token.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	if err := b.store.Put(t.Context(), pki.BootstrapToken, data); err != nil {
		t.Fatal(err)
	}
	return token
}

// masters are an API server with a controller: requests get their certificates from the cluster's authority.
type masters struct {
	b *bench
	// token is the only one that is accepted; "" accepts any.
	token string
	// why keeps requests undecided, and over ends them.
	why, over string
	// lose is how many answers are lost after a request has arrived.
	lose  int
	calls int
	asked map[string]certs.JoinRequest
}

func (m *masters) join(_ string, _ []byte, token string) (certs.Joiner, error) {
	return joiner{m, token}, nil
}

type joiner struct {
	*masters
	bearer string
}

var errLost = errors.New("connection reset by peer")

func (j joiner) Ask(_ context.Context, r certs.JoinRequest) error {
	if j.token != "" && j.bearer != j.token {
		return fmt.Errorf("%w: 401", certs.ErrTokenRefused)
	}
	if j.calls++; j.asked == nil {
		j.asked = map[string]certs.JoinRequest{}
	}
	j.asked[r.Name] = r
	if j.lose--; j.lose >= 0 {
		return errLost
	}
	return nil
}

func (j joiner) Answer(ctx context.Context, name string) (certs.JoinAnswer, error) {
	r, ok := j.asked[name]
	if !ok || j.over != "" || j.why != "" {
		return certs.JoinAnswer{Over: j.over, Why: j.why}, nil
	}
	block, _ := pem.Decode(r.PEM)
	asked, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return certs.JoinAnswer{}, err
	}
	crt, err := j.b.store.Get(ctx, pki.KubernetesCA+pki.Crt)
	if err != nil {
		return certs.JoinAnswer{}, err
	}
	key, err := j.b.store.Get(ctx, pki.KubernetesCA+pki.Key)
	if err != nil {
		return certs.JoinAnswer{}, err
	}
	ca, err := pki.ParseAuthority(crt, key)
	if err != nil {
		return certs.JoinAnswer{}, err
	}
	signed, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{SerialNumber: big.NewInt(1), Subject: asked.Subject,
		NotBefore: j.b.now.Add(-time.Minute), NotAfter: j.b.now.Add(7 * 24 * time.Hour)}, ca.Certificate, asked.PublicKey, ca.Key)
	return certs.JoinAnswer{Approved: true, Certificate: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: signed})}, err
}

func (b *bench) options(m *masters, patience time.Duration) certs.BootstrapOptions {
	if m == nil {
		m = &masters{}
	}
	m.b = b
	return certs.BootstrapOptions{Root: b.root, Config: conf(), Store: b.store, Now: func() time.Time { return b.now },
		Node: func() (string, error) { return "node-a", nil }, Reach: func(context.Context) error { return nil }, Join: m.join,
		Patience: patience, Status: b.status}
}

func (b *bench) bootstrap(ctx context.Context, patience time.Duration) (certs.Bootstrapped, error) {
	return certs.Bootstrap(ctx, b.options(nil, patience))
}

// A master's name is not in DNS before its group has it in service, so that its node asks its own API server.
func TestBootstrapOnMaster(t *testing.T) {
	b := newBench(t, role.Minions)
	b.publish(t)
	o := b.options(nil, 0)
	o.Config.Roles = role.NewSet(role.Masters, role.Minions)
	if got, err := certs.Bootstrap(t.Context(), o); err != nil || got.Server != "https://127.0.0.1:443" {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestBootstrap(t *testing.T) {
	b := newBench(t, role.Minions)
	token := b.publish(t)
	m := &masters{}
	o := b.options(m, 0)
	o.Prove = func(_ context.Context, request []byte) (string, error) {
		return fmt.Sprintf("proof of %x", sha256.Sum256(request)), nil
	}
	got, err := certs.Bootstrap(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if got.Server != "https://masters.demo.k8s:443" || len(got.Changed) != 4 || !got.Joined || got.Node != "node-a" || got.Expires.Sub(b.now) != 7*24*time.Hour {
		t.Errorf("%+v", got)
	}
	for _, r := range m.asked {
		block, _ := pem.Decode(r.PEM)
		asked, err := x509.ParseCertificateRequest(block.Bytes)
		if err != nil || asked.CheckSignature() != nil || asked.Subject.String() != "CN=system:node:node-a,O=system:nodes" ||
			r.Proof != fmt.Sprintf("proof of %x", sha256.Sum256(block.Bytes)) {
			t.Errorf("asked by %+v, %v", r, err)
		}
	}
	// The kubelet takes its certificate from a link to a file with a date, and nobody has the token.
	target, err := os.Readlink(filepath.Join(b.root, certs.NodeIdentity))
	if err != nil || target != "kubelet-client-2026-01-02-03-04-05.pem" {
		t.Errorf("%q, %v", target, err)
	}
	for _, dir := range []string{"kubelet", "kube-proxy", "flanneld"} {
		kubeconfig := string(b.read(t, dir, "kubeconfig"))
		if strings.Contains(kubeconfig, token.Secret) || strings.Count(kubeconfig, certs.NodeIdentity) != 2 || !strings.Contains(kubeconfig, "/run/hardtack/pki/"+dir+"/ca.crt") {
			t.Errorf("%s: %s", dir, kubeconfig)
		}
	}
	err = filepath.WalkDir(b.root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		data, err := os.ReadFile(path)
		if strings.Contains(string(data), token.Secret) {
			t.Errorf("%s has the token", path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	// A machine that has joined needs neither a token nor the API server.
	b.store = refusing{}
	again, err := b.bootstrap(t.Context(), 0)
	if err != nil || len(again.Changed) != 0 || again.Joined || !again.Expires.Equal(got.Expires) {
		t.Errorf("%+v %v", again, err)
	}
}

// TestJoinAgain asks for another certificate where the machine's is gone, has expired, or is another node's.
func TestJoinAgain(t *testing.T) {
	for name, spoil := range map[string]func(b *bench, o *certs.BootstrapOptions) error{
		"after a reboot": func(b *bench, _ *certs.BootstrapOptions) error {
			return os.Remove(filepath.Join(b.root, certs.NodeIdentity))
		},
		"half written": func(b *bench, _ *certs.BootstrapOptions) error {
			return os.Truncate(filepath.Join(b.root, certs.NodeIdentity), 100)
		},
		"with another name": func(_ *bench, o *certs.BootstrapOptions) error {
			o.Node = func() (string, error) { return "node-b", nil }
			return nil
		},
		"after it expired": func(b *bench, o *certs.BootstrapOptions) error {
			b.now = b.now.Add(8 * 24 * time.Hour)
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, role.Minions)
			b.publish(t)
			if _, err := b.bootstrap(t.Context(), 0); err != nil {
				t.Fatal(err)
			}
			o := b.options(nil, 0)
			if err := spoil(b, &o); err != nil {
				t.Fatal(err)
			}
			b.publish(t)
			if got, err := certs.Bootstrap(t.Context(), o); err != nil || !got.Joined {
				t.Errorf("%+v, %v", got, err)
			}
		})
	}
}

// TestLostReply loses the answer to the first request: there is one request, not two.
func TestLostReply(t *testing.T) {
	b := newBench(t, role.Minions)
	b.publish(t)
	m := &masters{lose: 2}
	got, err := certs.Bootstrap(t.Context(), b.options(m, time.Minute))
	if err != nil || !got.Joined || len(m.asked) != 1 || m.calls != 3 {
		t.Errorf("%+v, %v, %d requests by %d calls", got, err, len(m.asked), m.calls)
	}
}

// TestUndecided says why the masters do not approve a request, and makes another one when the proof of it has expired, or
// it was denied.
func TestUndecided(t *testing.T) {
	b := newBench(t, role.Minions)
	b.publish(t)
	m := &masters{why: "the node node-a is there and Ready"}
	_, err := certs.Bootstrap(t.Context(), b.options(m, 0))
	if reason.Of(err) != reason.Identity || !strings.Contains(err.Error(), "is there and Ready") || reason.Explain("u", err).Next == "" {
		t.Errorf("%v", err)
	}
	m = &masters{why: "not yet"}
	o := b.options(m, time.Minute)
	looks := 0
	o.Status = func(string) {
		looks++
		b.now = b.now.Add(6 * time.Minute)
		if m.over = "Denied: by hand"; looks > 1 {
			m.why, m.over = "", ""
		}
	}
	if got, err := certs.Bootstrap(t.Context(), o); err != nil || !got.Joined || len(m.asked) != 3 {
		t.Errorf("%+v, %v, after %d requests", got, err, len(m.asked))
	}
}

// TestTokenReplaced has an API server that has lost its data, and with them the token that the store still has.
func TestTokenReplaced(t *testing.T) {
	b := newBench(t, role.Minions)
	b.publish(t)
	m := &masters{}
	o := b.options(m, time.Minute)
	m.token = "another"
	o.Status = func(text string) {
		if !strings.HasPrefix(text, "[token]") {
			t.Errorf("it says %q", text)
		}
		m.token = b.publish(t).Bearer()
	}
	if got, err := certs.Bootstrap(t.Context(), o); err != nil || !got.Joined {
		t.Errorf("%+v, %v", got, err)
	}
}

// own writes a token for this machine alone, as its user data would.
func (b *bench) own(t *testing.T, token pki.Token) {
	t.Helper()
	data, err := token.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	b.ownText(t, data)
}

func (b *bench) ownText(t *testing.T, data []byte) {
	t.Helper()
	name := filepath.Join(b.root, pki.MachineTokenPath)
	err := os.MkdirAll(filepath.Dir(name), 0o755)
	if err == nil {
		err = os.WriteFile(name, data, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestOwnToken joins with the machine's own token, without the cluster's, and with the cluster's where the own one is not
// accepted, has expired, or is none.
func TestOwnToken(t *testing.T) {
	for name, tt := range map[string]struct {
		age               time.Duration
		rubbish           bool
		publish, accepted bool
	}{
		"its own, and none in the store": {accepted: true},
		"its own before the cluster's":   {accepted: true, publish: true},
		"its own is used":                {publish: true},
		"its own has expired":            {publish: true, age: 25 * time.Hour},
		"rubbish":                        {publish: true, rubbish: true},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, role.Minions)
			own, m := pki.NewToken(b.now.Add(-tt.age)), &masters{}
			b.own(t, own)
			if tt.rubbish {
				b.ownText(t, []byte("rubbish"))
			}
			if tt.publish {
				m.token = b.publish(t).Bearer()
			}
			if tt.accepted {
				m.token = own.Bearer()
			}
			if got, err := certs.Bootstrap(t.Context(), b.options(m, time.Minute)); err != nil || !got.Joined || m.calls != 1 {
				t.Errorf("%+v, %v, after %d requests", got, err, m.calls)
			}
		})
	}
}

// TestOwnTokenAgain has an API server that knows the machine's own token later: the cluster's gets no certificate, and after
// five minutes the own one is tried again.
func TestOwnTokenAgain(t *testing.T) {
	b := newBench(t, role.Minions)
	own, common := pki.NewToken(b.now), b.publish(t)
	b.own(t, own)
	m := &masters{token: common.Bearer(), why: "FIRST_COME=no"}
	o := b.options(m, time.Minute)
	o.Status = func(text string) {
		if strings.Contains(text, "FIRST_COME=no") {
			m.token, m.why = own.Bearer(), ""
			b.now = b.now.Add(6 * time.Minute)
		}
	}
	if got, err := certs.Bootstrap(t.Context(), o); err != nil || !got.Joined || m.calls != 2 {
		t.Errorf("%+v, %v, after %d requests", got, err, m.calls)
	}
}

// TestBootstrapSaysWhich gives each thing that can be wrong its own reason, and its own word about what to do.
func TestBootstrapSaysWhich(t *testing.T) {
	for name, tt := range map[string]struct {
		spoil func(t *testing.T, b *bench)
		want  reason.Reason
		says  string
	}{
		"no token yet":  {func(*testing.T, *bench) {}, reason.Token, "not in the store"},
		"no permission": {func(_ *testing.T, b *bench) { b.store = refusing{} }, reason.Permission, "no permission"},
		"out of reach": {func(t *testing.T, b *bench) {
			t.Helper()
			b.store = store.NewDir(t.TempDir() + "/x")
		}, reason.Store, "out of reach"},
		"nobody who says who this is": {func(_ *testing.T, b *bench) { b.store = unknown{} }, reason.Metadata, "no metadata"},
		"an old token": {func(t *testing.T, b *bench) {
			t.Helper()
			b.publish(t)
			b.now = b.now.Add(25 * time.Hour)
		}, reason.Token, "expired at 2026-01-03T03:04:05Z, and the clock says 2026-01-03T04:04:05Z"},
		"a spoiled token": {func(t *testing.T, b *bench) {
			t.Helper()
			_ = b.store.Put(t.Context(), pki.BootstrapToken, []byte("x"))
		}, reason.Token, "reading the bootstrap token"},
		"no authority": {func(t *testing.T, b *bench) {
			t.Helper()
			b.root = t.TempDir()
		}, reason.Config, machine.CAPath},
		"a spoiled authority": {func(t *testing.T, b *bench) {
			t.Helper()
			b.write(t, machine.CAPath, []byte("x"))
		}, reason.Config, "no block"},
		"a slow clock": {func(t *testing.T, b *bench) {
			t.Helper()
			b.publish(t)
			b.now = b.now.AddDate(-1, 0, 0)
		}, reason.Clock, "the clock is wrong"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, role.Minions)
			tt.spoil(t, b)
			got, err := b.bootstrap(t.Context(), 0)
			if err == nil || reason.Of(err) != tt.want || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("%q: %v, want %q with %q (%+v)", reason.Of(err), err, tt.want, tt.says, got)
			}
			if f := reason.Explain("u", err); f.Next == "" {
				t.Error("it does not say what to do")
			}
		})
	}
}

// TestBootstrapWaits starts a minion before its cluster has a token, a right or a store, and lets them come.
func TestBootstrapWaits(t *testing.T) {
	b := newBench(t, role.Minions)
	behind := b.store
	b.store = &later{Store: behind, refusals: 1, faults: 1}
	done := make(chan error)
	go func() {
		_, err := b.bootstrap(t.Context(), certs.Forever)
		done <- err
	}()
	for !strings.Contains(b.said(), "[token]") {
		select {
		case err := <-done:
			t.Fatalf("it did not wait: %v", err)
		case <-time.After(10 * time.Millisecond):
		}
	}
	data, err := pki.NewToken(b.now).Marshal()
	if err == nil {
		err = behind.Put(t.Context(), pki.BootstrapToken, data)
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"[permission]", "[store]", "[token]"} {
		if strings.Count(b.said(), want) != 1 {
			t.Errorf("the status said %s %d times, want once:\n%s", want, strings.Count(b.said(), want), b.said())
		}
	}
}

// unknown is the store of a machine that could not find out who it is.
type unknown struct{ refusing }

func (unknown) Get(context.Context, string) ([]byte, error) {
	return nil, fmt.Errorf("reading: %w", reason.Errorf(reason.Metadata, "%w: no metadata", pki.ErrUnreachable))
}

// later is a store that refuses first, then is out of reach, and then works.
type later struct {
	store.Store
	refusals, faults int
}

func (l *later) Get(ctx context.Context, object string) ([]byte, error) {
	if l.refusals--; l.refusals >= 0 {
		return nil, fmt.Errorf("reading %s: %w", object, pki.ErrForbidden)
	}
	if l.faults--; l.faults >= 0 {
		return nil, fmt.Errorf("reading %s: %w", object, pki.ErrUnreachable)
	}
	return l.Store.Get(ctx, object)
}
