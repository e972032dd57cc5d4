package certs_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/node/certs"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/config"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/machine"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/reason"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki/authority"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki/store"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// student is a machine that has been told nothing but its cluster's name.
type student struct {
	*bench
	conf config.Effective
	tag  func(context.Context) (string, string, error)
}

func newStudent(t *testing.T, members []string, roles ...role.Role) *student {
	t.Helper()
	s := &student{bench: &bench{root: t.TempDir(), roles: role.NewSet(roles...), now: created}, conf: conf()}
	s.conf.CAFile, s.conf.Etcd = "", machine.Etcd{}
	s.store = store.NewDir(filepath.Join(t.TempDir(), "store"))
	info := s.conf.Info()
	info.Etcd.Members = members
	if _, err := authority.Create(t.Context(), s.store, info, created); err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *student) learn(ctx context.Context, patience time.Duration) (config.Effective, error) {
	return certs.Learn(ctx, certs.LearnOptions{Root: s.root, Roles: s.roles, Config: s.conf, Store: s.store, Member: s.tag, Patience: patience, Status: s.status})
}

// file is what a file has below the machine's root, "" for none.
func (s *student) file(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(s.root, name))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return string(text)
}

// TestLearn has machines take from the store what they were not told.
func TestLearn(t *testing.T) {
	t.Run("a minion", func(t *testing.T) {
		s := newStudent(t, nil, role.Minions)
		if _, err := s.learn(t.Context(), 0); err != nil {
			t.Fatal(err)
		}
		ca, err := s.store.Get(t.Context(), pki.PublicKubernetes)
		if err != nil || s.file(t, config.CAFile) != string(ca) {
			t.Errorf("it trusts %q, %v", s.file(t, config.CAFile), err)
		}
		if s.file(t, certs.EtcdEnvFile)+s.file(t, certs.APIServerEnvFile) != "" {
			t.Error("a minion is told about etcd")
		}
	})
	t.Run("a master of an etcd of three", func(t *testing.T) {
		s := newStudent(t, []string{"a", "b", "c"}, role.Masters)
		got, err := s.learn(t.Context(), 0)
		if err != nil || machine.JoinMembers(got.Etcd.Members) != "a b c" {
			t.Fatalf("%+v, %v", got.Etcd, err)
		}
		if want := "ETCD_SERVERS=--etcd-servers=https://etcd-a.demo.k8s:2379,https://etcd-b.demo.k8s:2379,https://etcd-c.demo.k8s:2379\n"; s.file(t, certs.APIServerEnvFile) != want {
			t.Errorf("%q", s.file(t, certs.APIServerEnvFile))
		}
	})
	t.Run("one of three, by its tag", func(t *testing.T) {
		s := newStudent(t, []string{"a", "b", "c"}, role.Etcd)
		asked := 0
		s.tag = func(context.Context) (string, string, error) {
			if asked++; asked == 1 {
				return "", "", errors.New("the metadata service is late")
			}
			return "b", "", nil
		}
		got, err := s.learn(t.Context(), time.Minute)
		if err != nil || got.Etcd.Member != "b" || asked != 2 {
			t.Fatalf("%+v after %d questions, %v", got.Etcd, asked, err)
		}
		if env := s.file(t, certs.EtcdEnvFile); !strings.HasPrefix(env, "ETCD_NAME=b\n") || strings.Contains(env, "ETCD_INITIAL_CLUSTER=") {
			t.Errorf("%q", env)
		}
		if !strings.Contains(s.said(), "[metadata] the metadata service is late") {
			t.Errorf("it has said %q", s.said())
		}
	})
	t.Run("one of three, by its line", func(t *testing.T) {
		s := newStudent(t, []string{"a", "b", "c"}, role.Etcd)
		s.conf.Etcd.Member = "c"
		s.tag = func(context.Context) (string, string, error) {
			return "", "", errors.New("it is asked although it was told")
		}
		if got, err := s.learn(t.Context(), 0); err != nil || got.Etcd.Member != "c" {
			t.Fatalf("%+v, %v", got.Etcd, err)
		}
	})
	t.Run("the only one", func(t *testing.T) {
		s := newStudent(t, nil, role.Masters, role.Etcd)
		if _, err := s.learn(t.Context(), 0); err != nil || s.file(t, certs.EtcdEnvFile)+s.file(t, certs.APIServerEnvFile) != "" {
			t.Errorf("%v, %q", err, s.file(t, certs.EtcdEnvFile))
		}
	})
	t.Run("a CA of its own", func(t *testing.T) {
		s := newStudent(t, nil, role.Minions)
		s.conf.CAFile = machine.CAPath
		if got, err := s.learn(t.Context(), 0); err != nil || s.file(t, config.CAFile) != "" || got.CA() != machine.CAPath {
			t.Errorf("%v, %q", err, s.file(t, config.CAFile))
		}
	})
}

// TestLearnStops has machines stop that nothing may be served by, before anything of theirs is written.
func TestLearnStops(t *testing.T) {
	for name, tt := range map[string]struct {
		spoil  func(t *testing.T, s *student)
		reason reason.Reason
		says   string
	}{
		"another range": {func(_ *testing.T, s *student) {
			s.conf.Values = []config.Value{{Field: machine.FieldServiceCIDR, Value: "10.0.0.0/16", From: config.FromImage, Where: "/etc/kubernetes/config"}}
		}, reason.Drift, "network.serviceCIDR is 10.0.0.0/16 in /etc/kubernetes/config, and the cluster's is 10.96.0.0/16"},
		"a store of an older make": {func(t *testing.T, s *student) {
			t.Helper()
			if err := os.Remove(filepath.Join(strings.TrimPrefix(s.store.String(), "dir:"), pki.PublicInfo)); err != nil {
				t.Fatal(err)
			}
		}, reason.Store, "hardtack pki create --cluster demo --store dir:"},
		"a spoiled object": {func(t *testing.T, s *student) {
			t.Helper()
			if err := s.store.Put(t.Context(), pki.PublicInfo, []byte("x: y\n")); err != nil {
				t.Fatal(err)
			}
		}, reason.Store, "hardtack pki verify"},
		"a spoiled CA": {func(t *testing.T, s *student) {
			t.Helper()
			if err := s.store.Put(t.Context(), pki.PublicKubernetes, []byte("x")); err != nil {
				t.Fatal(err)
			}
		}, reason.Store, "hardtack pki verify"},
		"no member": {func(_ *testing.T, s *student) {
			s.tag = func(context.Context) (string, string, error) { return "", "its metadata show no tags", nil }
		}, reason.Config, "ETCD_MEMBER="},
		"a member of another cluster": {func(_ *testing.T, s *student) {
			s.tag = func(context.Context) (string, string, error) { return "x", "", nil }
		}, reason.Drift, "one of a, b"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStudent(t, []string{"a", "b"}, role.Etcd)
			s.tag = func(context.Context) (string, string, error) { return "a", "", nil }
			tt.spoil(t, s)
			_, err := s.learn(t.Context(), 0)
			f := reason.Explain("u", errors.Join(err))
			if err == nil || f.Reason != tt.reason || !strings.Contains(f.Cause+f.Next, tt.says) {
				t.Fatalf("%+v, want %q with %q", f, tt.reason, tt.says)
			}
			if s.file(t, certs.EtcdEnvFile)+s.file(t, config.InfoFile) != "" {
				t.Error("it has written what daemons start with")
			}
		})
	}
}

// TestLearnWaits starts a minion before there is a store at all, and lets it come.
func TestLearnWaits(t *testing.T) {
	s := newStudent(t, nil, role.Minions)
	whole := s.store
	s.store = store.NewDir(filepath.Join(t.TempDir(), "none"))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	s.store = onlyLater{s.store, whole, func() bool { return strings.Contains(s.said(), "out of reach") }}
	if _, err := s.learn(ctx, certs.Forever); err != nil {
		t.Fatal(err)
	}
}

// onlyLater is a store that is another until something has happened.
type onlyLater struct {
	store.Store
	then store.Store
	when func() bool
}

func (l onlyLater) Get(ctx context.Context, object string) ([]byte, error) {
	if l.when() {
		return l.then.Get(ctx, object)
	}
	return l.Store.Get(ctx, object)
}
