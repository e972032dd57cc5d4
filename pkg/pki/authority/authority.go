// Package authority creates a cluster's certificate authorities and keys, and the record with which its etcd begins, in its
// store, and inspects them.
//
// Its rule: nothing that exists is ever replaced. Each object is created independently: objects of an interrupted run are
// kept and only missing ones are created, so that repeating a run completes it, and two concurrent runs end with one set.
package authority

import (
	"context"
	"crypto/ecdsa"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/etcd"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/machine"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki"
)

// Store reads and creates objects by path. Get's error matches pki.ErrNotFound if there is no such object; Create's
// matches pki.ErrExists if there is one, which it leaves alone.
type Store interface {
	fmt.Stringer
	Get(ctx context.Context, object string) ([]byte, error)
	Create(ctx context.Context, object string, content []byte) error
}

// The values of Made.Action.
const (
	Created = "created"
	Kept    = "kept"
)

// Made is the result of Create for one object.
type Made struct {
	Object string `json:"object"`
	Action string `json:"action"`
}

// creator is one run of Create.
type creator struct {
	store   Store
	cluster string
	now     time.Time
	made    []Made
}

// Create creates the missing authorities, keys and etcd's first epoch of a cluster, and returns every object in order, up to the one that
// failed. The cluster's own facts come first: if they differ from those in the store, it is an error and nothing is
// created.
func Create(ctx context.Context, store Store, info machine.ClusterInfo, now time.Time) ([]Made, error) {
	c := &creator{store: store, cluster: info.Cluster, now: now}
	if err := c.info(ctx, info); err != nil {
		return c.made, err
	}
	for _, name := range pki.Authorities() {
		if err := c.authority(ctx, name); err != nil {
			return c.made, err
		}
	}
	if err := c.serviceAccount(ctx); err != nil {
		return c.made, err
	}
	if _, err := c.object(ctx, pki.EncryptionKey, func() ([]byte, error) { return pki.NewEncryptionKey(), nil }); err != nil {
		return c.made, err
	}
	return c.made, c.epoch(ctx, info)
}

// epoch begins the first epoch of the cluster's etcd: its members start with this record only, once. It is the last object,
// so that no member starts in a store that is not complete.
func (c *creator) epoch(ctx context.Context, info machine.ClusterInfo) error {
	name := etcd.BeginObject(1)
	content, err := c.object(ctx, name, func() ([]byte, error) {
		begin := etcd.Begin{Token: etcd.NewToken()}
		members := info.Etcd.Members
		if len(members) == 0 {
			members = []string{machine.LoneMember}
		}
		for _, m := range members {
			begin.Members = append(begin.Members, etcd.Peer{Name: m, URL: machine.EtcdPeerURL(info.Cluster, m, info.Etcd.Members)})
		}
		return etcd.Encode(begin), nil
	})
	if err != nil {
		return err
	}
	if _, err := etcd.Parse[etcd.Begin](content); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// object returns the object's content: from the store, or newly made, or what another run created in between.
func (c *creator) object(ctx context.Context, name string, made func() ([]byte, error)) ([]byte, error) {
	content, err := c.store.Get(ctx, name)
	if err == nil {
		c.made = append(c.made, Made{name, Kept})
		return content, nil
	}
	// Create makes a missing directory.
	if !errors.Is(err, pki.ErrNotFound) && !errors.Is(err, pki.ErrUnreachable) {
		return nil, err
	}
	if content, err = made(); err != nil {
		return nil, fmt.Errorf("making %s: %w", name, err)
	}
	err = c.store.Create(ctx, name, content)
	switch {
	case err == nil:
		c.made = append(c.made, Made{name, Created})
		return content, nil
	case errors.Is(err, pki.ErrExists):
		c.made = append(c.made, Made{name, Kept})
		return c.store.Get(ctx, name)
	}
	return nil, err
}

// info writes the cluster's own facts, or compares them with those in the store.
func (c *creator) info(ctx context.Context, info machine.ClusterInfo) error {
	data, err := info.Marshal()
	if err == nil {
		_, err = machine.ParseInfo(pki.PublicInfo, data) // never write what cannot be read
	}
	if err != nil {
		return fmt.Errorf("writing what the cluster's members agree on: %w", err)
	}
	content, err := c.object(ctx, pki.PublicInfo, func() ([]byte, error) { return data, nil })
	if err != nil {
		return err
	}
	have, err := machine.ParseInfo(pki.PublicInfo, content)
	if err != nil {
		return fmt.Errorf("reading what the cluster's members have agreed on: %w", err)
	}
	return Same(info, have, c.store)
}

// Same returns an error that lists where the wanted facts of a cluster differ from those agreed on in its store.
func Same(want, agreed machine.ClusterInfo, store fmt.Stringer) error {
	differ := want.Differences(agreed)
	if len(differ) == 0 {
		return nil
	}
	var say []string
	theirs := agreed.Facts()
	for i, f := range want.Facts() {
		if f.Value != theirs[i].Value && strings.HasPrefix(f.Field, "network.") {
			say = append(say, f.Field+": "+theirs[i].Value)
		}
	}
	same := ""
	if len(say) > 0 {
		same = " (" + strings.Join(say, ", ") + ")"
	}
	return fmt.Errorf("%s of %s was written once, for all machines, and says otherwise: %s; "+
		"next: make the cluster's document say the same%s, or, while no machine of the cluster has ever run, delete that object and run hardtack pki create -f CLUSTER.yaml",
		pki.PublicInfo, store, strings.Join(differ, "; "), same)
}

// Agreed reads the cluster's own facts, on which its members agreed.
func Agreed(ctx context.Context, store Getter) (machine.ClusterInfo, error) {
	content, err := store.Get(ctx, pki.PublicInfo)
	if err != nil {
		return machine.ClusterInfo{}, err
	}
	return machine.ParseInfo(pki.PublicInfo, content)
}

// key creates or reads a private key.
func (c *creator) key(ctx context.Context, name string) (*ecdsa.PrivateKey, error) {
	content, err := c.object(ctx, name, func() ([]byte, error) {
		key, err := pki.NewKey()
		if err != nil {
			return nil, err
		}
		return pki.EncodeKey(key)
	})
	if err != nil {
		return nil, err
	}
	key, err := pki.ParseKey(content)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return key, nil
}

// authority creates the key first: every run then makes the certificate from that key. A certificate without its key
// is an error, since a new key would not match it.
func (c *creator) authority(ctx context.Context, name string) error {
	if err := c.refuseOrphan(ctx, name); err != nil {
		return err
	}
	key, err := c.key(ctx, name+pki.Key)
	if err != nil {
		return err
	}
	content, err := c.object(ctx, name+pki.Crt, func() ([]byte, error) {
		a, err := pki.NewAuthority(pki.AuthorityName(c.cluster, name), key, c.now)
		if err != nil {
			return nil, err
		}
		return pki.EncodeCertificate(a.Certificate), nil
	})
	if err != nil {
		return err
	}
	certs, err := pki.ParseTrusted(content)
	if err != nil {
		return fmt.Errorf("%s: %w", name+pki.Crt, err)
	}
	if !slices.ContainsFunc(certs, func(c *x509.Certificate) bool { return key.PublicKey.Equal(c.PublicKey) }) {
		return fmt.Errorf("%s is not the certificate of %s: one of the two was replaced, and nothing is changed here", name+pki.Crt, name+pki.Key)
	}
	if name != pki.KubernetesCA {
		return nil
	}
	public, err := c.object(ctx, pki.PublicKubernetes, func() ([]byte, error) { return content, nil })
	if err != nil {
		return err
	}
	if err := publishes(public, key); err != nil {
		return fmt.Errorf("%w, and nothing is changed here", err)
	}
	return nil
}

// publishes reports a public copy in which the authority that signs is not. It may have others: a rotation that was interrupted
// has changed the copy, and not yet the original.
func publishes(public []byte, key *ecdsa.PrivateKey) error {
	certs, err := pki.ParseTrusted(public)
	if err != nil {
		return fmt.Errorf("%s: %w", pki.PublicKubernetes, err)
	}
	if !slices.ContainsFunc(certs, func(c *x509.Certificate) bool { return key.PublicKey.Equal(c.PublicKey) }) {
		return fmt.Errorf("%s has no certificate of the key of %s: one of the two was replaced", pki.PublicKubernetes, pki.KubernetesCA)
	}
	return nil
}

// refuseOrphan reports a certificate whose key is missing. It looks for the certificate first: another run creates the
// key before it, so that a certificate that is found has its key too.
func (c *creator) refuseOrphan(ctx context.Context, name string) error {
	if _, err := c.store.Get(ctx, name+pki.Crt); err != nil {
		return nil // missing, or an error that creating the certificate returns again
	}
	if _, err := c.store.Get(ctx, name+pki.Key); errors.Is(err, pki.ErrNotFound) {
		return fmt.Errorf("%s is there and %s is gone: what it was made of cannot be made again; "+
			"next: restore the key, or start over with an empty store", name+pki.Crt, name+pki.Key)
	}
	return nil
}

func (c *creator) serviceAccount(ctx context.Context) error {
	key, err := c.key(ctx, pki.ServiceAccount+pki.Key)
	if err != nil {
		return err
	}
	private, err := pki.EncodeKey(key)
	if err != nil {
		return err
	}
	have, err := c.object(ctx, pki.ServiceAccount+pki.Pub, func() ([]byte, error) { return pki.EncodePublic(&key.PublicKey) })
	if err != nil {
		return err
	}
	if _, err := pki.ParseAccountKeys(have, private); err != nil {
		return fmt.Errorf("%s and %s: %w, and nothing is changed here", pki.ServiceAccount+pki.Pub, pki.ServiceAccount+pki.Key, err)
	}
	return nil
}
