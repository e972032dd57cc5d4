package authority_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/pki"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki/authority"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki/store"
)

// reads reports whether an API server with the keys have can read what one with the keys other writes.
func reads(have, other pki.EncryptionKeys) bool {
	return slices.Contains(have.Names(), other.Names()[0])
}

// TestRotateEncryption takes all steps, and holds each against the one before and after: masters are never all at the same
// step, and each has to read what the others write.
func TestRotateEncryption(t *testing.T) {
	s := store.NewDir(t.TempDir())
	if _, err := authority.Create(t.Context(), s, info, now); err != nil {
		t.Fatal(err)
	}
	stored := func() pki.EncryptionKeys {
		data, err := s.Get(t.Context(), pki.EncryptionKey)
		if err != nil {
			t.Fatal(err)
		}
		keys, err := pki.ParseEncryptionKeys(data)
		if err != nil {
			t.Fatal(err)
		}
		return keys
	}
	at, rewritten := now, 0
	broken := errors.New("connection refused")
	rotate := func(taken bool, rewrite func(context.Context) error) (authority.Rotation, error) {
		return authority.RotateEncryption(t.Context(), s, authority.RotateOptions{Now: at, Taken: taken, Rewrite: rewrite})
	}
	fine := func(context.Context) error {
		rewritten++
		if keys := stored(); keys.Step != pki.StepUsed || len(keys.Keys) != 2 {
			t.Errorf("Secrets are written again at step %s with %d keys", keys.Step, len(keys.Keys))
		}
		return nil
	}
	first := stored()
	before := first
	for _, want := range []string{pki.StepAdded, pki.StepUsed, pki.StepNone} {
		state, err := rotate(false, fine)
		if err != nil || state.Step != want {
			t.Fatalf("%v: step %s, want %s", err, state.Step, want)
		}
		after := stored()
		if !slices.Equal(state.Keys, after.Names()) || state.Next == "" {
			t.Errorf("%+v, and stored are %v", state, after.Names())
		}
		// After the last step nothing is left that the old key has encrypted.
		if !reads(before, after) || !reads(after, before) {
			t.Errorf("step %s: with %v and %v one master does not read what another writes", want, before.Names(), after.Names())
		}
		before = after
		if want == pki.StepNone {
			break
		}
		at = at.Add(authority.Settle - time.Second)
		if _, err := rotate(false, fine); err == nil || !strings.Contains(err.Error(), "--taken") || stored().Step != want {
			t.Errorf("the step after %s before its time: %v", want, err)
		}
		at = at.Add(time.Second)
		if want != pki.StepUsed {
			continue
		}
		// What is not written again stays readable.
		for name, rewrite := range map[string]func(context.Context) error{"--kubeconfig": nil, "connection refused": func(context.Context) error { return broken }} {
			if _, err := rotate(true, rewrite); err == nil || !strings.Contains(err.Error(), name) || len(stored().Keys) != 2 {
				t.Errorf("%v, want %q, and %d keys", err, name, len(stored().Keys))
			}
		}
	}
	if rewritten != 1 || len(before.Keys) != 1 || before.Names()[0] == first.Names()[0] {
		t.Errorf("rewritten %d times, keys %v after %v", rewritten, before.Names(), first.Names())
	}
	if _, err := rotate(true, nil); err != nil || stored().Step != pki.StepAdded {
		t.Errorf("a second rotation: %v", err)
	}
	healthy(t, s)
}

// TestRotateWithoutAWait: --taken stands for the time.
func TestRotateWithoutAWait(t *testing.T) {
	s := store.NewDir(t.TempDir())
	if _, err := authority.Create(t.Context(), s, info, now); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{pki.StepAdded, pki.StepUsed} {
		state, err := authority.RotateEncryption(t.Context(), s, authority.RotateOptions{Now: now, Taken: true})
		if err != nil || state.Step != want {
			t.Fatalf("%v: step %s, want %s", err, state.Step, want)
		}
		status, err := authority.EncryptionRotation(t.Context(), s)
		if err != nil || !slices.Equal(status.Keys, state.Keys) || !status.Since.Equal(*state.Since) || !status.NotBefore.Equal(now.Add(authority.Settle)) {
			t.Errorf("%v: %+v, want %+v", err, status, state)
		}
	}
	// An older run of create keeps what a rotation has made.
	made, err := authority.Create(t.Context(), s, info, now)
	if err != nil || slices.ContainsFunc(made, func(m authority.Made) bool { return m.Action != authority.Kept }) {
		t.Errorf("%v %v", made, err)
	}
}

// overtaken is a store in which another run takes the step first.
type overtaken struct {
	*store.Dir
	by func()
}

func (o overtaken) Swap(ctx context.Context, object string, old, content []byte) error {
	o.by()
	return o.Dir.Swap(ctx, object, old, content)
}

// TestRotateAtOnce: of two operators one takes the step, and the other learns it; no key that a master may have read is lost.
func TestRotateAtOnce(t *testing.T) {
	s := store.NewDir(t.TempDir())
	if _, err := authority.Create(t.Context(), s, info, now); err != nil {
		t.Fatal(err)
	}
	o := authority.RotateOptions{Now: now}
	var first authority.Rotation
	_, err := authority.RotateEncryption(t.Context(), overtaken{s, func() {
		var err error
		if first, err = authority.RotateEncryption(t.Context(), s, o); err != nil {
			t.Error(err)
		}
	}}, o)
	if !errors.Is(err, pki.ErrChanged) {
		t.Errorf("the second: %v", err)
	}
	if now, err := authority.EncryptionRotation(t.Context(), s); err != nil || !slices.Equal(now.Keys, first.Keys) {
		t.Errorf("%v: %v, want the first one's %v", err, now.Keys, first.Keys)
	}
}
