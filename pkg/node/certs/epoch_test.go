package certs_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hardtack/packer-plugin-hardtack/pkg/etcd"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/certs"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki/store"
)

// TestEpochs: a new epoch has the masters' daemons started again, once, and the first one does not.
func TestEpochs(t *testing.T) {
	root := t.TempDir()
	masters := []string{pki.DirAPIServer, pki.DirControllerManager, pki.DirScheduler}
	for _, dir := range append(slices.Clone(masters), pki.DirEtcd) {
		if err := os.MkdirAll(filepath.Join(root, pki.Dir, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	s := store.NewDir(t.TempDir())
	e := certs.Epochs{Root: root, Store: s}
	create := func(object string, content []byte) {
		t.Helper()
		if err := s.Create(t.Context(), object, content); err != nil {
			t.Fatal(err)
		}
	}
	begin := etcd.Encode(etcd.Begin{Token: "t", Members: []etcd.Peer{{Name: "a", URL: "https://a:2380"}}})
	formed := etcd.Encode(etcd.Outcome{Formed: &etcd.Formed{ClusterID: 7}})
	abandoned := etcd.Encode(etcd.Outcome{Abandoned: "a has lost its data"})
	look := func(want bool) {
		t.Helper()
		changed, err := e.Look(t.Context())
		pending := certs.PendingRestarts(root)
		if err != nil || changed != want || want != slices.Equal(pending, masters) || !want && len(pending) > 0 {
			t.Errorf("changed %v, %v, pending %v; want %v", changed, err, pending, want)
		}
		for _, dir := range pending { // as after a restart
			if err := os.Remove(filepath.Join(root, pki.Dir, dir, ".restart")); err != nil {
				t.Fatal(err)
			}
		}
	}
	create(pki.PublicInfo, nil)
	if err := e.Begin(t.Context()); err != nil {
		t.Fatal(err)
	}
	create(etcd.BeginObject(1), begin)
	look(false)
	create(etcd.OutcomeObject(1), formed)
	look(false)
	look(false)
	create(etcd.BeginObject(2), begin)
	look(false)
	create(etcd.OutcomeObject(2), abandoned)
	create(etcd.BeginObject(3), begin)
	look(false)
	create(etcd.OutcomeObject(3), formed)
	if err := e.Begin(t.Context()); err != nil { // when certificates are renewed
		t.Error(err)
	}
	look(true)
	look(false)

	if err := os.Remove(filepath.Join(root, "run/hardtack/etcd-epoch")); err != nil { // a boot
		t.Fatal(err)
	}
	look(false)
	create(etcd.BeginObject(4), begin)
	create(etcd.OutcomeObject(4), []byte(`{"format":2}`))
	if _, err := e.Look(t.Context()); !errors.Is(err, etcd.ErrNewer) || !strings.Contains(err.Error(), "epochs/4/outcome") {
		t.Error(err)
	}
}
