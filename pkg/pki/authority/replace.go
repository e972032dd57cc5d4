package authority

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"path"
	"slices"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/pki"
)

// Replaceable lists the authorities that RotateAuthority replaces: those of which every daemon that trusts or uses them
// reads the files anew. The others have readers that look only at their start, or outside the cluster's machines.
func Replaceable() []string { return []string{pki.KubeletServingCA, pki.FrontProxyCA} }

// Replacer is a store whose objects can be created and replaced.
type Replacer interface {
	Swapper
	Create(ctx context.Context, object string, content []byte) error
}

// replacement is an authority in the store and where its replacement is.
type replacement struct {
	name  string
	crt   []byte // the objects as they were read
	key   []byte
	certs []*x509.Certificate // the old one first
	// signs is the index in certs of the one that signs.
	signs int
	step  string
	since time.Time
}

// RotationOf returns the state of the rotation of an authority, by the name of its objects.
func RotationOf(ctx context.Context, store Getter, name string) (Rotation, error) {
	r, err := readReplacement(ctx, store, name)
	if err != nil {
		return Rotation{}, err
	}
	return r.rotation(), nil
}

func readReplacement(ctx context.Context, store Getter, name string) (r replacement, err error) {
	r.name = name
	if r.crt, err = store.Get(ctx, name+pki.Crt); err != nil {
		return r, err
	}
	if r.key, err = store.Get(ctx, name+pki.Key); err != nil {
		return r, err
	}
	a, err := pki.ParseAuthority(r.crt, r.key)
	if err == nil {
		r.certs, err = pki.ParseTrusted(r.crt)
	}
	if err == nil {
		r.step, r.since, err = pki.ParseStep(r.crt)
	}
	if err != nil {
		return r, fmt.Errorf("%s: %w", name, err)
	}
	r.signs = slices.IndexFunc(r.certs, func(c *x509.Certificate) bool { return pki.Same(c, a.Certificate) })
	if (len(r.certs) == 2) != (r.step != pki.StepNone) {
		return r, fmt.Errorf("%s has %d certificates at step %q: it was changed by hand", name+pki.Crt, len(r.certs), r.step)
	}
	return r, nil
}

// settle is how long a step takes to reach everything that depends on it. Kubelets ask for another serving certificate
// only when the one that they have ends.
func (r replacement) settle() time.Duration {
	if r.name == pki.KubeletServingCA && r.step == pki.StepUsed {
		return Settle + pki.LeafLife
	}
	return Settle
}

func (r replacement) rotation() Rotation {
	out := Rotation{Object: r.name + pki.Crt, Step: r.step, Since: nil}
	for _, c := range r.certs {
		out.Keys = append(out.Keys, pki.Fingerprint(c))
	}
	if r.signs == 1 {
		slices.Reverse(out.Keys)
	}
	if r.step != pki.StepNone {
		notBefore := r.since.Add(r.settle())
		out.Since, out.NotBefore = &r.since, &notBefore
	}
	switch {
	case r.step == pki.StepAdded:
		out.Next = "sign with the new authority, and still trust the old one"
	case r.step == pki.StepUsed && r.signs == 0:
		out.Next = "finish the step that was interrupted: sign with the new authority"
	case r.step == pki.StepUsed:
		out.Next = "trust only the new authority"
	default:
		out.Next = "add a new authority, to trust"
	}
	return out
}

// RotateAuthority takes the next step of the rotation of one of Replaceable, and returns the state after it: the new one is
// trusted; it signs; only it is trusted. It refuses, and may be repeated, as RotateEncryption.
func RotateAuthority(ctx context.Context, store Replacer, cluster, name string, o RotateOptions) (Rotation, error) {
	if !slices.Contains(Replaceable(), name) {
		return Rotation{}, fmt.Errorf("rotating %s: only %v can be replaced", name, Replaceable())
	}
	r, err := readReplacement(ctx, store, name)
	if err != nil {
		return Rotation{}, err
	}
	have := r.rotation()
	interrupted := r.step == pki.StepUsed && r.signs == 0
	if have.NotBefore != nil && o.Now.Before(*have.NotBefore) && !o.Taken && !interrupted {
		how := renewAll
		if r.settle() > Settle {
			how = "replace every minion, so that its kubelet asks for another certificate"
		}
		return have, early(name, store, have, "a daemon that trusts only one authority refuses what the other has signed", how)
	}
	switch {
	case r.step == pki.StepNone:
		err = r.add(ctx, store, cluster, o.Now)
	case r.step == pki.StepAdded, interrupted:
		err = r.use(ctx, store, o.Now)
	default:
		err = store.Swap(ctx, name+pki.Crt, r.crt, pki.EncodeCertificate(r.certs[1]))
	}
	if err != nil {
		return have, err
	}
	return RotationOf(ctx, store, name)
}

// successor is the object with the next authority: its key and its certificate. It is made once for each authority, so that
// runs at once agree on it. It stays in the store, where the key soon is the authority's own.
func (r replacement) successor() string {
	return r.name + ".next-" + pki.Fingerprint(r.certs[0])[:16]
}

func (r replacement) add(ctx context.Context, store Replacer, cluster string, now time.Time) error {
	key, err := pki.NewKey()
	if err != nil {
		return err
	}
	next, err := pki.NewAuthority(pki.AuthorityName(cluster, r.name), key, now)
	if err != nil {
		return err
	}
	keyPEM, err := pki.EncodeKey(key)
	if err != nil {
		return err
	}
	err = store.Create(ctx, r.successor(), append(keyPEM, pki.EncodeCertificate(next.Certificate)...))
	if err != nil && !errors.Is(err, pki.ErrExists) {
		return err
	}
	cert, _, err := r.readSuccessor(ctx, store)
	if err != nil {
		return err
	}
	return store.Swap(ctx, r.name+pki.Crt, r.crt, pki.EncodeStep([]*x509.Certificate{r.certs[0], cert}, pki.StepAdded, now))
}

func (r replacement) readSuccessor(ctx context.Context, store Getter) (*x509.Certificate, []byte, error) {
	data, err := store.Get(ctx, r.successor())
	if err != nil {
		return nil, nil, err
	}
	key, cert, err := pki.SplitPair(data)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", path.Base(r.successor()), err)
	}
	a, err := pki.ParseAuthority(cert, key)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", r.successor(), err)
	}
	return a.Certificate, key, nil
}

// use writes the time first and the key then: where it breaks off in between, the key is still the old one, which says so.
func (r replacement) use(ctx context.Context, store Replacer, now time.Time) error {
	cert, key, err := r.readSuccessor(ctx, store)
	if err != nil {
		return err
	}
	if !pki.Same(cert, r.certs[1]) {
		return fmt.Errorf("%s is not the key of the second certificate of %s: one of the two was replaced", r.successor(), r.name+pki.Crt)
	}
	if err := store.Swap(ctx, r.name+pki.Crt, r.crt, pki.EncodeStep(r.certs, pki.StepUsed, now)); err != nil {
		return err
	}
	return store.Swap(ctx, r.name+pki.Key, r.key, key)
}
