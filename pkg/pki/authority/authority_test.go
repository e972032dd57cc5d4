package authority_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/node/machine/machinetest"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki/authority"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki/store"
)

var (
	now      = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	errCrash = errors.New("the operator's machine lost its power")
)

// info is a default cluster's.
var info = machinetest.Info("demo")

// crashing ends everything after a number of calls of Create: before it is carried out, or after it, when its
// answer is lost.
type crashing struct {
	authority.Store
	left  int
	after bool
}

func (c *crashing) Create(ctx context.Context, object string, content []byte) error {
	if c.left--; c.left >= 0 {
		return c.Store.Create(ctx, object, content)
	}
	if c.after {
		if err := c.Store.Create(ctx, object, content); err != nil {
			return err
		}
	}
	return errCrash
}

// contents reads every object that a run made.
func contents(t *testing.T, s store.Store, made []authority.Made) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, m := range made {
		data, err := s.Get(t.Context(), m.Object)
		if err != nil {
			t.Fatal(err)
		}
		out[m.Object] = string(data)
	}
	return out
}

// healthy asserts that Inspect finds nothing wrong.
func healthy(t *testing.T, s store.Store) {
	t.Helper()
	items, err := authority.Inspect(t.Context(), s, now.Add(2*time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	if len(items) != 16 {
		t.Errorf("%d objects, want 16", len(items))
	}
	for _, i := range items {
		if i.Problem != "" {
			t.Errorf("%s: %s", i.Object, i.Problem)
		}
	}
}

func TestCreateTwice(t *testing.T) {
	s := store.NewDir(t.TempDir())
	made, err := authority.Create(t.Context(), s, info, now)
	if err != nil {
		t.Fatal(err)
	}
	if slices.ContainsFunc(made, func(m authority.Made) bool { return m.Action != authority.Created }) {
		t.Errorf("kept something of an empty store: %v", made)
	}
	healthy(t, s)
	before := contents(t, s, made)
	again, err := authority.Create(t.Context(), s, info, now.Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	if slices.ContainsFunc(again, func(m authority.Made) bool { return m.Action != authority.Kept }) {
		t.Errorf("the second run made something: %v", again)
	}
	if !maps.Equal(before, contents(t, s, again)) {
		t.Error("the second run changed something")
	}
}

// TestCrashAnywhere ends the first run at each of its steps, and lets a second one finish.
func TestCrashAnywhere(t *testing.T) {
	for _, after := range []bool{false, true} {
		for step := range 16 {
			t.Run(fmt.Sprintf("step %d, carried out %v", step, after), func(t *testing.T) {
				s := store.NewDir(t.TempDir())
				made, err := authority.Create(t.Context(), &crashing{s, step, after}, info, now)
				if !errors.Is(err, errCrash) || len(made) != step {
					t.Fatalf("%v after %v", err, made)
				}
				before := contents(t, s, made)
				again, err := authority.Create(t.Context(), s, info, now.Add(time.Hour))
				if err != nil {
					t.Fatal(err)
				}
				healthy(t, s)
				for object, content := range contents(t, s, again) {
					if had, ok := before[object]; ok && had != content {
						t.Errorf("%s was replaced", object)
					}
				}
			})
		}
	}
}

// TestAtOnce has several operators create the same cluster.
func TestAtOnce(t *testing.T) {
	for range 20 {
		s := store.NewDir(t.TempDir())
		var group sync.WaitGroup
		for range 4 {
			group.Go(func() {
				if _, err := authority.Create(t.Context(), s, info, now); err != nil {
					t.Error(err)
				}
			})
		}
		group.Wait()
		healthy(t, s)
	}
}

// TestRefusals breaks a store in ways that Create must not make worse.
func TestRefusals(t *testing.T) {
	for name, tt := range map[string]struct {
		spoil func(s store.Store, other string) error
		want  string
	}{
		"a key of another cluster": {func(s store.Store, other string) error {
			return copyFrom(s, other, pki.KubernetesCA+pki.Key)
		}, "one of the two was replaced"},
		"a public copy of another cluster": {func(s store.Store, other string) error {
			return copyFrom(s, other, pki.PublicKubernetes)
		}, "has no certificate of the key of"},
		"another service account's public half": {func(s store.Store, other string) error {
			return copyFrom(s, other, pki.ServiceAccount+pki.Pub)
		}, "belongs to no public one"},
		"a certificate that is none": {func(s store.Store, _ string) error {
			return s.Put(context.Background(), pki.EtcdPeerCA+pki.Crt, []byte("x"))
		}, "etcd/peer-ca.crt"},
	} {
		t.Run(name, func(t *testing.T) {
			s, other := store.NewDir(t.TempDir()), t.TempDir()
			for _, one := range []store.Store{s, store.NewDir(other)} {
				if _, err := authority.Create(t.Context(), one, info, now); err != nil {
					t.Fatal(err)
				}
			}
			if err := tt.spoil(s, other); err != nil {
				t.Fatal(err)
			}
			if _, err := authority.Create(t.Context(), s, info, now); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("create: %v, want %q", err, tt.want)
			}
			items, err := authority.Inspect(t.Context(), s, now)
			if err != nil {
				t.Fatal(err)
			}
			if !slices.ContainsFunc(items, func(i authority.Item) bool { return i.Problem != "" }) {
				t.Error("inspect finds nothing")
			}
		})
	}
}

func copyFrom(s store.Store, other, object string) error {
	data, err := store.NewDir(other).Get(context.Background(), object)
	if err != nil {
		return err
	}
	return s.Put(context.Background(), object, data)
}

// lost hides one object.
type lost struct {
	store.Store
	object string
}

func (l lost) Get(ctx context.Context, object string) ([]byte, error) {
	if object == l.object {
		return nil, pki.ErrNotFound
	}
	return l.Store.Get(ctx, object)
}

// TestLostKey: a new key would not be the one that the certificate, and everything it has signed, was made of.
func TestLostKey(t *testing.T) {
	s := store.NewDir(t.TempDir())
	if _, err := authority.Create(t.Context(), s, info, now); err != nil {
		t.Fatal(err)
	}
	_, err := authority.Create(t.Context(), lost{s, pki.FrontProxyCA + pki.Key}, info, now)
	if err == nil || !strings.Contains(err.Error(), "restore the key") {
		t.Errorf("%v", err)
	}
}

// TestInspectTellsNoSecrets looks for every secret of the store in what Inspect says.
func TestInspectTellsNoSecrets(t *testing.T) {
	s := store.NewDir(t.TempDir())
	if _, err := authority.Create(t.Context(), s, info, now); err != nil {
		t.Fatal(err)
	}
	token := pki.NewToken(now)
	data, err := token.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Put(t.Context(), pki.BootstrapToken, data); err != nil {
		t.Fatal(err)
	}
	items, err := authority.Inspect(t.Context(), s, now)
	if err != nil || len(items) != 17 {
		t.Fatalf("%v, %d objects", err, len(items))
	}
	text, err := json.Marshal(items)
	if err != nil {
		t.Fatal(err)
	}
	secrets := []string{token.Secret}
	for _, i := range items {
		content, err := s.Get(t.Context(), i.Object)
		if err != nil {
			t.Fatal(err)
		}
		if i.Kind == "private key" || i.Kind == "encryption key" {
			for line := range strings.Lines(string(content)) {
				if line = strings.TrimSpace(line); !strings.HasPrefix(line, "-----") && len(line) > 8 {
					secrets = append(secrets, line)
				}
			}
		}
	}
	if len(secrets) < 10 {
		t.Fatalf("only %d secrets to look for", len(secrets))
	}
	for _, secret := range secrets {
		if strings.Contains(string(text), secret) {
			t.Errorf("a secret is in what is shown: %.6s…", secret)
		}
	}
}

// TestOtherInfo makes a cluster again that is to be another one: nothing is made, and both values are told.
func TestOtherInfo(t *testing.T) {
	s := store.NewDir(t.TempDir())
	if _, err := authority.Create(t.Context(), s, info, now); err != nil {
		t.Fatal(err)
	}
	other := info
	other.Network.ServiceCIDR, other.Network.DNSAddress, other.Etcd.Members = "10.0.0.0/16", "10.0.0.10", []string{"a", "b", "c"}
	made, err := authority.Create(t.Context(), s, other, now)
	if err == nil || len(made) != 1 {
		t.Fatalf("%v after %v", err, made)
	}
	for _, want := range []string{"network.serviceCIDR is 10.96.0.0/16, not 10.0.0.0/16", "etcd.members is none (one beside its API server), not a b c", "next: "} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%v\nwant %s", err, want)
		}
	}
	if agreed, err := authority.Agreed(t.Context(), s); err != nil || len(info.Differences(agreed)) > 0 {
		t.Errorf("%+v, %v", agreed, err)
	}
}

// TestInfoAtOnce has operators with different documents create the same cluster: one wins, and all others are told.
func TestInfoAtOnce(t *testing.T) {
	s := store.NewDir(t.TempDir())
	var group sync.WaitGroup
	var mu sync.Mutex
	won := 0
	for i := range 6 {
		group.Go(func() {
			mine := info
			mine.API.Port = 6440 + i
			if _, err := authority.Create(t.Context(), s, mine, now); err == nil {
				mu.Lock()
				won++
				mu.Unlock()
			} else if !strings.Contains(err.Error(), "api.port is 644") {
				t.Error(err)
			}
		})
	}
	group.Wait()
	if won != 1 {
		t.Errorf("%d of six are content", won)
	}
}
