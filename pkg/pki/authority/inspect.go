package authority

import (
	"context"
	"crypto/ecdsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/etcd"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/machine"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki"
)

// Getter reads objects, the half of Store that inspecting needs.
type Getter interface {
	Get(ctx context.Context, object string) ([]byte, error)
}

// Item describes an object of the store, without its secret.
type Item struct {
	Object string `json:"object"`
	// Kind is "cluster info", "authority", "private key", "public key", "encryption key", "epoch of etcd" or "bootstrap token".
	Kind string `json:"kind"`
	// Of an authority that is being replaced, with two certificates, the times are of the one that expires first, and there
	// are two fingerprints, separated by a comma.
	//
	// Subject is set for authorities, the cluster info, an epoch and an encryption key that is being rotated; the times for authorities, and Expires for bootstrap tokens too.
	Subject string     `json:"subject,omitempty"`
	Begins  *time.Time `json:"begins,omitempty"`
	Expires *time.Time `json:"expires,omitempty"`
	// Fingerprint is the SHA-256 of a certificate, or of the public half of a key; empty for other secrets.
	Fingerprint string `json:"fingerprint,omitempty"`
	// Problem says what is wrong; empty if nothing is. Missing means that Create would create the object.
	Problem string `json:"problem,omitempty"`
	Missing bool   `json:"missing,omitempty"`
}

// Inspect reads every object of a cluster, and checks each on its own and against related ones. It returns an error
// only if the store does not answer.
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
			continue // created by the first master
		case errors.Is(err, pki.ErrNotFound):
			item.Missing, item.Problem = true, "missing"
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
	kindInfo       = "cluster info"
	kindAuthority  = "authority"
	kindPrivate    = "private key"
	kindPublic     = "public key"
	kindEncryption = "encryption key"
	kindEpoch      = "epoch of etcd"
	kindToken      = "bootstrap token"
)

type object struct{ name, kind string }

func objects() []object {
	all := []object{{pki.PublicInfo, kindInfo}}
	for _, name := range pki.Authorities() {
		all = append(all, object{name + pki.Crt, kindAuthority}, object{name + pki.Key, kindPrivate})
	}
	return append(all,
		object{pki.PublicKubernetes, kindAuthority},
		object{pki.ServiceAccount + pki.Key, kindPrivate},
		object{pki.ServiceAccount + pki.Pub, kindPublic},
		object{pki.EncryptionKey, kindEncryption},
		object{etcd.BeginObject(1), kindEpoch},
		object{pki.BootstrapToken, kindToken})
}

func describe(item *Item, data []byte, now time.Time) error {
	switch item.Kind {
	case kindInfo:
		info, err := machine.ParseInfo(item.Object, data)
		if err != nil {
			return err
		}
		var facts []string
		for _, f := range info.Facts() {
			facts = append(facts, f.Field+"="+f.Value)
		}
		item.Subject = strings.Join(facts, ", ")
		return nil
	case kindAuthority:
		certs, err := pki.ParseTrusted(data)
		if err != nil {
			return err
		}
		item.Subject, item.Fingerprint = certs[0].Subject.String(), pki.Fingerprints(certs)
		for _, cert := range certs {
			if item.Expires == nil || cert.NotAfter.Before(*item.Expires) {
				item.Begins, item.Expires = &cert.NotBefore, &cert.NotAfter
			}
			err = errors.Join(err, pki.Check(cert, now))
		}
		return err
	case kindPrivate:
		key, err := pki.ParseKey(data)
		if err != nil {
			return err
		}
		item.Fingerprint = publicNames([]*ecdsa.PublicKey{&key.PublicKey})[0]
		return nil
	case kindPublic:
		keys, err := pki.ParsePublic(data)
		item.Fingerprint = strings.Join(publicNames(keys), ", ")
		return err
	case kindEncryption:
		keys, err := pki.ParseEncryptionKeys(data)
		if err == nil && keys.Step != pki.StepNone {
			item.Subject = fmt.Sprintf("rotation, step %s since %s", keys.Step, keys.Since.UTC().Format(time.RFC3339))
		}
		return err
	}
	if item.Kind == kindEpoch {
		begin, err := etcd.Parse[etcd.Begin](data)
		var members []string
		for _, m := range begin.Members {
			members = append(members, m.Name+"="+m.URL)
		}
		item.Subject = strings.Join(members, ", ")
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

// publicNames returns the SHA-256 of each public key.
func publicNames(keys []*ecdsa.PublicKey) []string {
	var names []string
	for _, key := range keys {
		der, err := x509.MarshalPKIXPublicKey(key)
		if err != nil {
			panic(err) // it was parsed
		}
		s := sha256.Sum256(der)
		names = append(names, hex.EncodeToString(s[:]))
	}
	return names
}

// belongs returns why an object does not match its counterpart, or "".
func belongs(name string, content map[string][]byte) string {
	for _, a := range pki.Authorities() {
		if name == a+pki.Crt && content[a+pki.Key] != nil {
			if _, err := pki.ParseAuthority(content[name], content[a+pki.Key]); err != nil {
				return err.Error()
			}
		}
	}
	if key, err := pki.ParseKey(content[pki.KubernetesCA+pki.Key]); name == pki.PublicKubernetes && err == nil {
		if err := publishes(content[name], key); err != nil {
			return err.Error()
		}
	}
	if key := content[pki.ServiceAccount+pki.Key]; name == pki.ServiceAccount+pki.Pub && key != nil {
		if _, err := pki.ParseAccountKeys(content[name], key); err != nil {
			return err.Error()
		}
	}
	return ""
}
