package authority_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/pki"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki/authority"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki/store"
)

// published is an issuer that counts, and fails as it is told.
type published struct {
	// keys is how many keys are published.
	keys          int
	refuse, stale error
}

func (p *published) String() string { return "https://id.example.org" }

func (p *published) Publish(_ context.Context, public []byte) error {
	if p.refuse != nil {
		return p.refuse
	}
	keys, err := pki.ParsePublic(public)
	p.keys = len(keys)
	return err
}

func (p *published) Check(_ context.Context, public []byte) error {
	keys, err := pki.ParsePublic(public)
	if err == nil && p.stale == nil && len(keys) != p.keys {
		return errors.New("other keys")
	}
	return errors.Join(err, p.stale)
}

// TestRotationPublishes: the keys follow each step. The step in which the new key begins to sign waits until it is published, and a step that
// was taken without is told; authorities are no business of the issuer's.
func TestRotationPublishes(t *testing.T) {
	s := store.NewDir(t.TempDir())
	if _, err := authority.Create(t.Context(), s, info, time.Now()); err != nil {
		t.Fatal(err)
	}
	p := &published{}
	rotate := func(name string) (authority.Rotation, error) {
		return authority.RotateAuthority(t.Context(), s, "demo", name, authority.RotateOptions{Now: time.Now(), Taken: true, Issuer: p})
	}
	step := func(want string, keys int) {
		t.Helper()
		state, err := rotate(pki.ServiceAccount)
		if err != nil || state.Step != want || p.keys != keys {
			t.Fatalf("%v: step %s with %d keys published, want %s with %d", err, state.Step, p.keys, want, keys)
		}
	}
	failing := func(at string, words ...string) {
		t.Helper()
		_, err := rotate(pki.ServiceAccount)
		for _, word := range words {
			if err == nil || !strings.Contains(err.Error(), word) {
				t.Errorf("%v, want %q", err, word)
			}
		}
		state, err := authority.RotationOf(t.Context(), s, pki.ServiceAccount)
		if err != nil || state.Step != at {
			t.Errorf("%v: step %s, want %s", err, state.Step, at)
		}
	}
	if _, err := rotate(pki.FrontProxyCA); err != nil || p.keys != 0 {
		t.Errorf("%v: %d keys are published with an authority", err, p.keys)
	}
	// The first step is taken though the bucket is out of reach: nothing signs with the new key yet.
	p.refuse = errors.New("out of reach")
	failing(pki.StepAdded, "the step is taken", "next: hardtack pki issuer publish", "out of reach")
	failing(pki.StepAdded, "nothing is changed in the store", "out of reach")
	p.refuse, p.stale = nil, errors.New("not what was written")
	failing(pki.StepAdded, "nothing is changed in the store", "not what was written")
	p.stale = nil
	step(pki.StepUsed, 2)
	// The last step needs no look: who has the old key's tokens has both keys, or the new one.
	p.stale = errors.New("not what was written")
	step(pki.StepNone, 1)
}
