package authority

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/pki"
)

// TokenLife is how long a service account's token is good at most: the API server's --service-account-max-token-expiration
// in its unit. Only tokens in Secrets have no end.
const TokenLife = 7 * 24 * time.Hour

// replaceable is an authority or a key that Rotate replaces. The object with what is trusted is its name with trust.
type replaceable struct {
	name, noun, trust string
	// public is a copy of what is trusted, for machines that may not read the original; empty if there is none.
	public string
	// lives is how long at most something stays in use that the old one has signed and nobody asks for again.
	lives time.Duration
	// early says what goes wrong when a step is taken too early, and instead what an operator does who does not wait for lives.
	early, instead string
	// sign and drop are what an operator does before the new one signs, and before the old one is dropped.
	sign, drop string
}

const earlyAuthority = "a daemon that trusts only one authority refuses what the other has signed"

func replaceables() []replaceable {
	minions := "replace every minion, so that its kubelet asks for another certificate"
	return []replaceable{
		{
			name: pki.KubernetesCA, noun: "authority", trust: pki.Crt, public: pki.PublicKubernetes, lives: pki.LeafLife, early: earlyAuthority, instead: minions,
			sign: "print every kubeconfig again, start pods again that ask the API server with a client older than Kubernetes 1.36, and, where user data has the authority (--ca), replace the machines with both in it",
			drop: "where user data has the authority (--ca), replace the machines with only the new one in it",
		},
		{name: pki.KubeletServingCA, noun: "authority", trust: pki.Crt, lives: pki.LeafLife, early: earlyAuthority, instead: minions,
			sign: "give both to programs that have a copy of it, such as metrics-server"},
		{name: pki.FrontProxyCA, noun: "authority", trust: pki.Crt, early: earlyAuthority},
		{name: pki.EtcdClientCA, noun: "authority", trust: pki.Crt, early: earlyAuthority},
		{name: pki.EtcdPeerCA, noun: "authority", trust: pki.Crt, early: earlyAuthority},
		{
			name: pki.ServiceAccount, noun: "key", trust: pki.Pub, lives: TokenLife,
			early: "an API server that has only one key refuses the tokens of the other", instead: "start every pod again whose token is older",
			drop: "delete Secrets of the type kubernetes.io/service-account-token, whose tokens have no end, and make them again",
		},
	}
}

// Replaceable lists what RotateAuthority replaces, by the names of their objects.
func Replaceable() (names []string) {
	for _, r := range replaceables() {
		names = append(names, r.name)
	}
	return names
}

// Replacer is a store whose objects can be created and replaced.
type Replacer interface {
	Swapper
	Create(ctx context.Context, object string, content []byte) error
}

// pair is what is trusted, one block of PEM each, and which of them belongs to the private key.
type pair struct {
	blocks [][]byte
	// names are the SHA-256.
	names []string
	signs int
}

// replacement is something replaceable in the store, and where its replacement is.
type replacement struct {
	replaceable
	trusted []byte // the objects as they were read
	key     []byte
	pair    // the old one first
	step    string
	since   time.Time
}

// RotationOf returns the state of the rotation of one of Replaceable.
func RotationOf(ctx context.Context, store Getter, name string) (Rotation, error) {
	r, err := readReplacement(ctx, store, name)
	if err != nil {
		return Rotation{}, err
	}
	return r.rotation(), nil
}

func readReplacement(ctx context.Context, store Getter, name string) (r replacement, err error) {
	i := slices.Index(Replaceable(), name)
	if i < 0 {
		return r, fmt.Errorf("rotating %s: only %v can be replaced", name, Replaceable())
	}
	r.replaceable = replaceables()[i]
	if r.trusted, err = store.Get(ctx, r.object()); err != nil {
		return r, err
	}
	if r.key, err = store.Get(ctx, name+pki.Key); err != nil {
		return r, err
	}
	if r.pair, err = r.parse(r.trusted, r.key); err == nil {
		r.step, r.since, err = pki.ParseStep(r.trusted)
	}
	if err != nil {
		return r, fmt.Errorf("%s: %w", name, err)
	}
	if (len(r.blocks) == 2) != (r.step != pki.StepNone) {
		return r, fmt.Errorf("%s has %d blocks at step %q: it was changed by hand", r.object(), len(r.blocks), r.step)
	}
	return r, nil
}

func (r replaceable) object() string { return r.name + r.trust }

// parse parses what is trusted, and the private key of one of them.
func (r replaceable) parse(trusted, key []byte) (p pair, err error) {
	if r.trust == pki.Pub {
		keys, err := pki.ParseAccountKeys(trusted, key)
		if err != nil {
			return pair{}, err
		}
		p.names = publicNames(keys.Public)
		for i, public := range keys.Public {
			block, err := pki.EncodePublic(public)
			if err != nil {
				return pair{}, err
			}
			p.blocks = append(p.blocks, block)
			if keys.Key.PublicKey.Equal(public) {
				p.signs = i
			}
		}
		return p, nil
	}
	certs, err := pki.ParseTrusted(trusted)
	if err != nil {
		return pair{}, err
	}
	a, err := pki.ParseAuthority(trusted, key)
	if err != nil {
		return pair{}, err
	}
	for i, c := range certs {
		p.blocks, p.names = append(p.blocks, pki.EncodeCertificate(c)), append(p.names, pki.Fingerprint(c))
		if pki.Same(c, a.Certificate) {
			p.signs = i
		}
	}
	return p, nil
}

// settle is how long a step takes to reach everything that depends on it.
func (r replacement) settle() time.Duration {
	if r.step == pki.StepUsed {
		return Settle + r.lives
	}
	return Settle
}

func (r replacement) rotation() Rotation {
	out := Rotation{Object: r.object(), Step: r.step, Keys: slices.Clone(r.names)}
	if r.signs == 1 {
		slices.Reverse(out.Keys)
	}
	if r.step != pki.StepNone {
		notBefore := r.since.Add(r.settle())
		out.Since, out.NotBefore = &r.since, &notBefore
	}
	switch {
	case r.step == pki.StepAdded:
		out.Next, out.Before = fmt.Sprintf("sign with the new %s, and still trust the old one", r.noun), r.sign
	case r.interrupted():
		out.Next = fmt.Sprintf("finish the step that was interrupted: sign with the new %s", r.noun)
	case r.step == pki.StepUsed:
		out.Next, out.Before = fmt.Sprintf("trust only the new %s", r.noun), r.drop
	default:
		out.Next = fmt.Sprintf("add a new %s, to trust", r.noun)
	}
	return out
}

// interrupted: the time of the step was written, and the key was not.
func (r replacement) interrupted() bool { return r.step == pki.StepUsed && r.signs == 0 }

// RotateAuthority takes the next step of the rotation of one of Replaceable, and returns the state after it: the new one is
// trusted; it signs; only it is trusted. It refuses, and may be repeated, as RotateEncryption.
func RotateAuthority(ctx context.Context, store Replacer, cluster, name string, o RotateOptions) (Rotation, error) {
	r, err := readReplacement(ctx, store, name)
	if err != nil {
		return Rotation{}, err
	}
	have := r.rotation()
	if have.NotBefore != nil && o.Now.Before(*have.NotBefore) && !o.Taken && !r.interrupted() {
		how := renewAll
		if r.settle() > Settle {
			how = r.instead
		}
		return have, early(name, store, have, r.early, how)
	}
	if r.trust != pki.Pub {
		o.Issuer = nil
	}
	switch {
	case r.step == pki.StepNone:
		err = r.add(ctx, store, cluster, o.Now)
	case r.step == pki.StepAdded, r.interrupted():
		if err = r.published(ctx, store, o.Issuer); err == nil {
			err = r.use(ctx, store, o.Now)
		}
	default:
		err = r.write(ctx, store, r.blocks[1:], r.blocks[1])
	}
	if err != nil {
		return have, err
	}
	if err := republish(ctx, store, r.object(), o.Issuer); err != nil {
		return have, err
	}
	return RotationOf(ctx, store, name)
}

// published refuses to sign with a key that who verifies tokens outside the cluster would not find.
func (r replacement) published(ctx context.Context, store fmt.Stringer, issuer Issuer) error {
	if issuer == nil {
		return nil
	}
	public := bytes.Join(r.blocks, nil)
	err := issuer.Publish(ctx, public)
	if err == nil {
		err = issuer.Check(ctx, public)
	}
	if err != nil {
		return fmt.Errorf("rotating %s of %s: the new key would sign tokens that %s does not let anybody verify: %w; "+
			"nothing is changed in the store; next: mend that (hardtack pki issuer check), and the same command again", r.name, store, issuer, err)
	}
	return nil
}

// republish publishes the keys after a step.
func republish(ctx context.Context, store Getter, object string, issuer Issuer) error {
	if issuer == nil {
		return nil
	}
	public, err := store.Get(ctx, object)
	if err == nil {
		err = issuer.Publish(ctx, public)
	}
	if err != nil {
		return fmt.Errorf("the step is taken, but the keys of %s are not those of the store: %w; next: hardtack pki issuer publish", issuer, err)
	}
	return nil
}

// write replaces what is trusted. Machines that join read the copy, which comes first: whether one of them trusts the new one
// already, or the old one no longer, changes nothing for it.
func (r replacement) write(ctx context.Context, store Replacer, trusted [][]byte, content []byte) error {
	if r.public != "" {
		have, err := store.Get(ctx, r.public)
		if err != nil {
			return err
		}
		if want := bytes.Join(trusted, nil); !bytes.Equal(have, want) {
			if err := store.Swap(ctx, r.public, have, want); err != nil {
				return err
			}
		}
	}
	return store.Swap(ctx, r.object(), r.trusted, content)
}

// successor is the object with the next one: its key and its certificate or public key. It is made once for each, so that
// runs at once agree on it. It stays in the store, where the key soon is the one that signs.
func (r replacement) successor() string { return r.name + ".next-" + r.names[0][:16] }

func (r replacement) add(ctx context.Context, store Replacer, cluster string, now time.Time) error {
	content, err := r.next(cluster, now)
	if err != nil {
		return err
	}
	if err := store.Create(ctx, r.successor(), content); err != nil && !errors.Is(err, pki.ErrExists) {
		return err
	}
	block, _, err := r.readSuccessor(ctx, store)
	if err != nil {
		return err
	}
	both := [][]byte{r.blocks[0], block}
	return r.write(ctx, store, both, pki.EncodeStep(both, pki.StepAdded, now))
}

// next makes a key, and returns it with its certificate or public half.
func (r replaceable) next(cluster string, now time.Time) ([]byte, error) {
	key, err := pki.NewKey()
	if err != nil {
		return nil, err
	}
	private, err := pki.EncodeKey(key)
	if err != nil {
		return nil, err
	}
	if r.trust == pki.Pub {
		public, err := pki.EncodePublic(&key.PublicKey)
		return append(private, public...), err
	}
	a, err := pki.NewAuthority(pki.AuthorityName(cluster, r.name), key, now)
	if err != nil {
		return nil, err
	}
	return append(private, pki.EncodeCertificate(a.Certificate)...), nil
}

func (r replacement) readSuccessor(ctx context.Context, store Getter) (block, key []byte, err error) {
	data, err := store.Get(ctx, r.successor())
	if err != nil {
		return nil, nil, err
	}
	key, trusted, err := pki.SplitPair(data)
	var p pair
	if err == nil {
		p, err = r.parse(trusted, key)
	}
	if err == nil && len(p.blocks) != 1 {
		err = fmt.Errorf("it has %d certificates or public keys, not one", len(p.blocks))
	}
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", r.successor(), err)
	}
	return p.blocks[0], key, nil
}

// use writes the time first and the key then: where it breaks off in between, the key is still the old one, which says so.
func (r replacement) use(ctx context.Context, store Replacer, now time.Time) error {
	block, key, err := r.readSuccessor(ctx, store)
	if err != nil {
		return err
	}
	if !bytes.Equal(block, r.blocks[1]) {
		return fmt.Errorf("%s is not the key of the second block of %s: one of the two was replaced", r.successor(), r.object())
	}
	if err := r.write(ctx, store, r.blocks, pki.EncodeStep(r.blocks, pki.StepUsed, now)); err != nil {
		return err
	}
	return store.Swap(ctx, r.name+pki.Key, r.key, key)
}
