package authority_test

import (
	"context"
	"crypto/ecdsa"
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

// held is what a machine has read from the store at one time: an authority, or the keys of service accounts.
type held struct {
	authority pki.Authority
	accounts  pki.AccountKeys
	// public is what a machine has read at the same time that may not read the authority's own objects.
	public []*x509.Certificate
}

func (h held) trusted() int { return max(len(h.authority.Trusted()), len(h.accounts.Public)) }

func machineAt(t *testing.T, s store.Store, name string) (h held) {
	t.Helper()
	get := func(object string) []byte {
		t.Helper()
		data, err := s.Get(t.Context(), object)
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	var err error
	if name == pki.ServiceAccount {
		h.accounts, err = pki.ParseAccountKeys(get(name+pki.Pub), get(name+pki.Key))
	} else {
		h.authority, err = pki.ParseAuthority(get(name+pki.Crt), get(name+pki.Key))
	}
	if err == nil && name == pki.KubernetesCA {
		h.public, err = pki.ParseTrusted(get(pki.PublicKubernetes))
	}
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// accepts asserts that a machine trusts what another one signs.
func accepts(t *testing.T, what string, at time.Time, one, other held) {
	t.Helper()
	if key := other.accounts.Key; key != nil {
		if !slices.ContainsFunc(one.accounts.Public, func(p *ecdsa.PublicKey) bool { return key.PublicKey.Equal(p) }) {
			t.Errorf("%s: the token is refused", what)
		}
		return
	}
	for _, trusting := range [][]*x509.Certificate{one.authority.Trusted(), one.public} {
		if trusting != nil {
			trusts(t, what, at, trusting, other.authority)
		}
	}
}

func trusts(t *testing.T, what string, at time.Time, trusting []*x509.Certificate, signing pki.Authority) {
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
	for _, c := range trusting {
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
				if key := after.accounts.Key; key == nil && state.Keys[0] != pki.Fingerprint(after.authority.Certificate) || len(state.Keys) != after.trusted() {
					t.Errorf("%s: %+v", name, state)
				}
				before = after
				if want == pki.StepNone {
					continue
				}
				wait := authority.Settle
				if lasting[name] && want == pki.StepUsed {
					wait += 7 * 24 * time.Hour
				}
				at = at.Add(wait - time.Second)
				if _, err := rotate(); err == nil || !strings.Contains(err.Error(), "--taken") {
					t.Errorf("%s: the step after %s before its time: %v", name, want, err)
				}
				at = at.Add(time.Second)
			}
		}
		if old := first.accounts.Key; before.trusted() != 1 || old == nil && pki.Same(first.authority.Certificate, before.authority.Certificate) ||
			old != nil && old.Equal(before.accounts.Key) {
			t.Errorf("%s was not replaced", name)
		}
		items, err := authority.Inspect(t.Context(), s, at)
		if err != nil || slices.ContainsFunc(items, func(i authority.Item) bool { return i.Problem != "" }) {
			t.Errorf("%v %+v", err, items)
		}
	}
	s := store.NewDir(t.TempDir())
	if _, err := authority.RotateAuthority(t.Context(), s, "demo", pki.EncryptionKey, authority.RotateOptions{Now: now}); err == nil || !strings.Contains(err.Error(), "can be replaced") {
		t.Errorf("something else was rotated: %v", err)
	}
}

// lasting are those that have signed what is kept for a week: kubelets' certificates, and tokens.
var lasting = map[string]bool{pki.KubernetesCA: true, pki.KubeletServingCA: true, pki.ServiceAccount: true}

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
	for _, name := range authority.Replaceable() {
		for i := range 6 {
			breaks, after := 1+i/2, i%2 == 1
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
			if end := machineAt(t, s, name); end.trusted() != 1 {
				t.Errorf("%s has not ended", name)
			}
			healthy(t, s)
		}
	}
}

// TestRotateAuthorityAtOnce: of two runs one takes the step, and both know the same successor.
func TestRotateAuthorityAtOnce(t *testing.T) {
	for _, name := range authority.Replaceable() {
		atOnce(t, name)
	}
}

func atOnce(t *testing.T, name string) {
	t.Helper()
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
