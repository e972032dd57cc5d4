package authority_test

import (
	"context"
	"crypto/x509"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/pki"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki/authority"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki/store"
)

// machineAt is what a machine has read from the store at one time.
func machineAt(t *testing.T, s store.Store, name string) pki.Authority {
	t.Helper()
	crt, err := s.Get(t.Context(), name+pki.Crt)
	if err != nil {
		t.Fatal(err)
	}
	key, err := s.Get(t.Context(), name+pki.Key)
	if err != nil {
		t.Fatal(err)
	}
	a, err := pki.ParseAuthority(crt, key)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// accepts asserts that a machine trusts what another one signs.
func accepts(t *testing.T, what string, at time.Time, trusting, signing pki.Authority) {
	t.Helper()
	pair, err := signing.Issue(pki.Profile{Name: "x", Usage: pki.Server, Life: time.Hour}, at)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := pki.ParseCertificate(pair.Certificate)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	for _, c := range trusting.Trusted() {
		roots.AddCert(c)
	}
	if _, err := cert.Verify(x509.VerifyOptions{Roots: roots, CurrentTime: at}); err != nil {
		t.Errorf("%s: %v", what, err)
	}
}

func TestRotateAuthority(t *testing.T) {
	for _, name := range authority.Replaceable() {
		s := store.NewDir(t.TempDir())
		if _, err := authority.Create(t.Context(), s, info, now); err != nil {
			t.Fatal(err)
		}
		at := now
		rotate := func() (authority.Rotation, error) {
			return authority.RotateAuthority(t.Context(), s, "demo", name, authority.RotateOptions{Now: at})
		}
		first := machineAt(t, s, name)
		before := first
		for range 2 { // a second rotation is like the first
			for _, want := range []string{pki.StepAdded, pki.StepUsed, pki.StepNone} {
				state, err := rotate()
				if err != nil || state.Step != want {
					t.Fatalf("%s: %v: step %s, want %s", name, err, state.Step, want)
				}
				after := machineAt(t, s, name)
				accepts(t, name+" "+want+", before by after", at, before, after)
				accepts(t, name+" "+want+", after by before", at, after, before)
				if state.Keys[0] != pki.Fingerprint(after.Certificate) || len(state.Keys) != len(after.Trusted()) {
					t.Errorf("%s: %+v", name, state)
				}
				before = after
				if want == pki.StepNone {
					continue
				}
				wait := authority.Settle
				if name == pki.KubeletServingCA && want == pki.StepUsed {
					wait += pki.LeafLife // kubelets keep their certificates
				}
				at = at.Add(wait - time.Second)
				if _, err := rotate(); err == nil || !strings.Contains(err.Error(), "--taken") {
					t.Errorf("%s: the step after %s before its time: %v", name, want, err)
				}
				at = at.Add(time.Second)
			}
		}
		if pki.Same(first.Certificate, before.Certificate) || len(before.Others) != 0 {
			t.Errorf("%s was not replaced", name)
		}
		items, err := authority.Inspect(t.Context(), s, at)
		if err != nil || slices.ContainsFunc(items, func(i authority.Item) bool { return i.Problem != "" }) {
			t.Errorf("%v %+v", err, items)
		}
	}
	s := store.NewDir(t.TempDir())
	if _, err := authority.RotateAuthority(t.Context(), s, "demo", pki.EtcdPeerCA, authority.RotateOptions{Now: now}); err == nil {
		t.Error("an authority that etcd reads only at its start was rotated")
	}
}

// breaking is a store whose writes fail from one on, before or after they are carried out.
type breaking struct {
	*store.Dir
	left  int
	after bool
}

func (b *breaking) write(do func() error) error {
	b.left--
	if b.left > 0 || b.left == 0 && b.after {
		if err := do(); err != nil || b.left > 0 {
			return err
		}
	}
	return errCrash
}

func (b *breaking) Create(ctx context.Context, object string, content []byte) error {
	return b.write(func() error { return b.Dir.Create(ctx, object, content) })
}

func (b *breaking) Swap(ctx context.Context, object string, old, content []byte) error {
	return b.write(func() error { return b.Dir.Swap(ctx, object, old, content) })
}

// TestRotateAuthorityBreaksOff ends each step at each of its writes, and takes it again: machines read a pair that fits at
// any time, trust what they trusted, and the waiting time counts from the end.
func TestRotateAuthorityBreaksOff(t *testing.T) {
	const name = pki.FrontProxyCA
	for _, after := range []bool{false, true} {
		for _, breaks := range []int{1, 2} {
			s := store.NewDir(t.TempDir())
			if _, err := authority.Create(t.Context(), s, info, now); err != nil {
				t.Fatal(err)
			}
			at := now
			for range 3 {
				before := machineAt(t, s, name)
				old, err := authority.RotationOf(t.Context(), s, name)
				if err != nil {
					t.Fatal(err)
				}
				o := authority.RotateOptions{Now: at, Taken: true}
				_, err = authority.RotateAuthority(t.Context(), &breaking{s, breaks, after}, "demo", name, o)
				if err != nil && !errors.Is(err, errCrash) {
					t.Fatal(err)
				}
				torn := machineAt(t, s, name)
				accepts(t, "torn by before", at, torn, before)
				accepts(t, "before by torn", at, before, torn)
				at = at.Add(time.Minute)
				state, err := authority.RotationOf(t.Context(), s, name)
				if err != nil {
					t.Fatal(err)
				}
				// Whoever does not know how far it came looks first, as the program says.
				if state.Step == old.Step || strings.Contains(state.Next, "interrupted") {
					if state, err = authority.RotateAuthority(t.Context(), s, "demo", name, authority.RotateOptions{Now: at, Taken: state.Step == old.Step}); err != nil {
						t.Fatal(err)
					}
					if state.Since != nil && !state.Since.Equal(at) {
						t.Errorf("step %s: since %v, and it ended at %v", state.Step, state.Since, at)
					}
				}
				if state.Step == old.Step {
					t.Errorf("it is still at step %s", state.Step)
				}
				at = at.Add(time.Minute)
			}
			if end := machineAt(t, s, name); len(end.Others) != 0 {
				t.Error("it has not ended")
			}
			healthy(t, s)
		}
	}
}

// TestRotateAuthorityAtOnce: of two runs one takes the step, and both know the same successor.
func TestRotateAuthorityAtOnce(t *testing.T) {
	const name = pki.KubeletServingCA
	s := store.NewDir(t.TempDir())
	if _, err := authority.Create(t.Context(), s, info, now); err != nil {
		t.Fatal(err)
	}
	o := authority.RotateOptions{Now: now, Taken: true}
	for _, want := range []string{pki.StepAdded, pki.StepUsed, pki.StepNone} {
		var first authority.Rotation
		_, err := authority.RotateAuthority(t.Context(), overtaken{s, func() {
			if first.Step != "" {
				return
			}
			var err error
			if first, err = authority.RotateAuthority(t.Context(), s, "demo", name, o); err != nil {
				t.Error(err)
			}
		}}, "demo", name, o)
		if !errors.Is(err, pki.ErrChanged) || first.Step != want {
			t.Errorf("the second: %v, the first: step %s, want %s", err, first.Step, want)
		}
		state, err := authority.RotationOf(t.Context(), s, name)
		if err != nil || !slices.Equal(state.Keys, first.Keys) {
			t.Errorf("%v: %v, want %v", err, state.Keys, first.Keys)
		}
	}
}
