package authority

import (
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/pki"
)

// Getter reads objects: the half of Store that looking at one needs.
type Getter interface {
	Get(ctx context.Context, object string) ([]byte, error)
}

// Item is what one object of the store is, without its secret.
type Item struct {
	Object string `json:"object"`
	// Kind is "authority", "private key", "public key", "encryption key" or "bootstrap token".
	Kind string `json:"kind"`
	// Subject and the times are an authority's; Expires is a bootstrap token's too.
	Subject string     `json:"subject,omitempty"`
	Begins  *time.Time `json:"begins,omitempty"`
	Expires *time.Time `json:"expires,omitempty"`
	// Fingerprint is the SHA-256 of a certificate, or of the public half of a key; empty for other secrets.
	Fingerprint string `json:"fingerprint,omitempty"`
	// Problem says what is wrong; empty is nothing.
	Problem string `json:"problem,omitempty"`
}

// Inspect reads every object that a cluster has, and checks each by itself and against those that it belongs to. It
// returns an error only where the store itself does not answer.
func Inspect(ctx context.Context, store Getter, now time.Time) ([]Item, error) {
	var items []Item
	content := map[string][]byte{}
	for _, object := range objects() {
		data, err := store.Get(ctx, object.name)
		if errors.Is(err, pki.ErrUnreachable) {
			return nil, err
		}
		item := Item{Object: object.name, Kind: object.kind}
		switch {
		case err == nil:
			content[object.name] = data
			if err := describe(&item, data, now); err != nil {
				item.Problem = err.Error()
			}
		case errors.Is(err, pki.ErrNotFound) && object.name == pki.BootstrapToken:
			continue // comes with the first master
		case errors.Is(err, pki.ErrNotFound):
			item.Problem = "missing: hardtack pki create makes it"
		default:
			item.Problem = err.Error()
		}
		items = append(items, item)
	}
	for i := range items {
		if items[i].Problem == "" {
			items[i].Problem = belongs(items[i].Object, content)
		}
	}
	return items, nil
}

// The kinds of objects.
const (
	kindAuthority  = "authority"
	kindPrivate    = "private key"
	kindPublic     = "public key"
	kindEncryption = "encryption key"
	kindToken      = "bootstrap token"
)

type object struct{ name, kind string }

func objects() []object {
	var all []object
	for _, name := range pki.Authorities() {
		all = append(all, object{name + pki.Crt, kindAuthority}, object{name + pki.Key, kindPrivate})
	}
	return append(all,
		object{pki.PublicKubernetes, kindAuthority},
		object{pki.ServiceAccount + pki.Key, kindPrivate},
		object{pki.ServiceAccount + pki.Pub, kindPublic},
		object{pki.EncryptionKey, kindEncryption},
		object{pki.BootstrapToken, kindToken})
}

func describe(item *Item, data []byte, now time.Time) error {
	switch item.Kind {
	case kindAuthority:
		cert, err := pki.ParseAuthorityCertificate(data)
		if err != nil {
			return err
		}
		item.Subject, item.Fingerprint = cert.Subject.String(), pki.Fingerprint(cert)
		item.Begins, item.Expires = &cert.NotBefore, &cert.NotAfter
		return pki.Check(cert, now)
	case kindPrivate:
		key, err := pki.ParseKey(data)
		if err != nil {
			return err
		}
		der, err := x509.MarshalPKIXPublicKey(key.Public())
		item.Fingerprint = sum(der)
		return err
	case kindPublic:
		der, err := pki.ParsePublic(data)
		item.Fingerprint = sum(der)
		return err
	case kindEncryption:
		_, err := pki.ParseEncryptionKey(data)
		return err
	}
	token, err := pki.ParseToken(data)
	if err != nil {
		return err
	}
	item.Subject, item.Expires = token.String(), &token.Expires
	if token.Expired(now) {
		return errors.New("expired: a running master replaces it")
	}
	return nil
}

func sum(der []byte) string {
	s := sha256.Sum256(der)
	return hex.EncodeToString(s[:])
}

// belongs says what is wrong between an object and the one that it was made of.
func belongs(name string, content map[string][]byte) string {
	for _, a := range pki.Authorities() {
		if name == a+pki.Crt && content[a+pki.Key] != nil {
			if _, err := pki.ParseAuthority(content[name], content[a+pki.Key]); err != nil {
				return err.Error()
			}
		}
	}
	original := content[pki.KubernetesCA+pki.Crt]
	if name == pki.PublicKubernetes && original != nil && string(original) != string(content[name]) {
		return fmt.Sprintf("it is not a copy of %s", pki.KubernetesCA+pki.Crt)
	}
	key, err := pki.ParseKey(content[pki.ServiceAccount+pki.Key])
	if name != pki.ServiceAccount+pki.Pub || err != nil {
		return ""
	}
	if public, err := pki.EncodePublic(key); err != nil || string(public) != string(content[name]) {
		return "it is not the public half of " + pki.ServiceAccount + pki.Key
	}
	return ""
}
