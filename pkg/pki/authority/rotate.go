package authority

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/pki"
)

// Settle is the time after which every machine has taken a step. hardtack-renew.timer starts an hour after its last run
// has ended, and up to 20 minutes later; this allows for one run that failed, and for the minute after which an API
// server reads its keys anew.
const Settle = 3 * time.Hour

// Swapper is a store whose objects can be replaced. Swap replaces an object that still has the content old; its error
// matches pki.ErrChanged if it has another.
type Swapper interface {
	fmt.Stringer
	Getter
	Swap(ctx context.Context, object string, old, content []byte) error
}

// Rotation is the state of the rotation of a key or of an authority.
type Rotation struct {
	Object string `json:"object"`
	// Step is pki.StepNone, StepAdded or StepUsed.
	Step string `json:"step"`
	// Keys are the names of the encryption keys, which prefix what they encrypt in etcd, or the SHA-256 of the authority's
	// certificates or of the public keys; the first encrypts or signs.
	Keys []string `json:"keys"`
	// Since is when the step was taken, and NotBefore when every master has taken it; nil for StepNone.
	Since     *time.Time `json:"since,omitempty"`
	NotBefore *time.Time `json:"not_before,omitempty"`
	// Next says what the next step does, and Before what an operator has to do before it; "" is nothing.
	Next   string `json:"next"`
	Before string `json:"before,omitempty"`
}

// RotateOptions are the options of Rotate.
type RotateOptions struct {
	Now time.Time
	// Taken: the caller has seen that every master has taken the last step, so that its time need not have passed.
	Taken bool
	// Rewrite writes every Secret again, through an API server, so that the key that encrypts has encrypted all of them. It
	// is called in the last step, and nil where there is no way to an API server.
	Rewrite func(context.Context) error
	// Uses waits until every API server uses an encryption configuration, the content of its file; called before each step but
	// the first. Without it, Secrets that are written again before an API server has read the last step's file are encrypted
	// with the old key, and lost with it. nil where there is no way to an API server: then Settle has to be enough.
	Uses func(ctx context.Context, config []byte) error
	// Issuer publishes the keys of pods' tokens; nil where nobody but the API servers verifies these.
	Issuer Issuer
}

// Issuer is where the public keys of a cluster's tokens are published.
type Issuer interface {
	fmt.Stringer
	// Publish publishes these public keys, in PEM, and no others. It may be repeated.
	Publish(ctx context.Context, public []byte) error
	// Check reads what is published as who verifies tokens does. It fails unless that is just these keys.
	Check(ctx context.Context, public []byte) error
}

// EncryptionRotation returns the state of the rotation of the encryption key.
func EncryptionRotation(ctx context.Context, store Getter) (Rotation, error) {
	_, keys, err := encryptionKeys(ctx, store)
	if err != nil {
		return Rotation{}, err
	}
	return rotation(keys), nil
}

func encryptionKeys(ctx context.Context, store Getter) ([]byte, pki.EncryptionKeys, error) {
	data, err := store.Get(ctx, pki.EncryptionKey)
	if err != nil {
		return nil, pki.EncryptionKeys{}, err
	}
	keys, err := pki.ParseEncryptionKeys(data)
	if err != nil {
		return nil, pki.EncryptionKeys{}, fmt.Errorf("%s: %w", pki.EncryptionKey, err)
	}
	return data, keys, nil
}

func rotation(keys pki.EncryptionKeys) Rotation {
	r := Rotation{Object: pki.EncryptionKey, Step: keys.Step, Keys: keys.Names()}
	if keys.Step != pki.StepNone {
		notBefore := keys.Since.Add(Settle)
		r.Since, r.NotBefore = &keys.Since, &notBefore
	}
	switch keys.Step {
	case pki.StepAdded:
		r.Next = "encrypt with the new key, and still read with the old one"
	case pki.StepUsed:
		r.Next = "write every Secret again, and drop the old key"
	default:
		r.Next = "add a new key, to read with"
	}
	return r
}

// early refuses a step before its time.
func early(object string, store fmt.Stringer, have Rotation, why, how string) error {
	return fmt.Errorf("rotating %s of %s: the step %q was taken at %s, and a machine may not have it before %s: %s; "+
		"next: wait until then, or %s, and say so with --taken",
		object, store, have.Step, have.Since.UTC().Format(time.RFC3339), have.NotBefore.UTC().Format(time.RFC3339), why, how)
}

// renewAll is how an operator makes every machine take a step.
const renewAll = "start hardtack-renew.service on every machine, wait until each has ended and two minutes more"

// RotateEncryption takes the next step of the rotation of the encryption key, and returns the state after it. A step is
// refused before every master has taken the last one: an API server that lacks a key cannot read what another one has
// written with it. It may be repeated after any error: what was done is not done again, and a Secret may be written
// twice. Of several calls at once one takes the step.
func RotateEncryption(ctx context.Context, store Swapper, o RotateOptions) (Rotation, error) {
	data, keys, err := encryptionKeys(ctx, store)
	if err != nil {
		return Rotation{}, err
	}
	have := rotation(keys)
	if have.NotBefore != nil && o.Now.Before(*have.NotBefore) && !o.Taken {
		return have, early(pki.EncryptionKey, store, have, "an API server without a key cannot read what another writes with it",
			renewAll)
	}
	if keys.Step != pki.StepNone && o.Uses != nil {
		config, err := pki.EncryptionConfig(keys)
		if err == nil {
			err = o.Uses(ctx, config)
		}
		if err != nil {
			return have, fmt.Errorf("rotating %s of %s: %w; then the same command again", pki.EncryptionKey, store, err)
		}
	}
	if keys.Step == pki.StepUsed {
		if o.Rewrite == nil {
			return have, fmt.Errorf("rotating %s of %s: every Secret has to be written again before %s is dropped, which needs the API server; "+
				"next: --kubeconfig FILE, as hardtack pki kubeconfig prints one", pki.EncryptionKey, store, strings.Join(have.Keys[1:], ""))
		}
		if err := o.Rewrite(ctx); err != nil {
			return have, fmt.Errorf("rotating %s of %s: %w; both keys stay; next: the same command again", pki.EncryptionKey, store, err)
		}
	}
	next := keys.Next(o.Now.UTC().Truncate(time.Second))
	content, err := next.Marshal()
	if err != nil {
		return have, err
	}
	if err := store.Swap(ctx, pki.EncryptionKey, data, content); err != nil {
		return have, err
	}
	return rotation(next), nil
}
