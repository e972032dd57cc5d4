package certs_test

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/node/machine"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/reason"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki/authority"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// TestReplacedAuthority replaces the authority that every machine trusts: in the user data, in the store, and on a master
// and a minion. Nobody is told to trust only what the others do not have yet.
func TestReplacedAuthority(t *testing.T) {
	b := newBench(t, role.Masters)
	b.publish(t)
	old, err := b.store.Get(t.Context(), pki.PublicKubernetes)
	if err != nil {
		t.Fatal(err)
	}
	key, err := pki.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	next, err := pki.NewAuthority(pki.AuthorityName("demo", pki.KubernetesCA), key, created.Add(time.Second))
	if err != nil {
		t.Fatal(err)
	}
	keyPEM, err := pki.EncodeKey(key)
	if err != nil {
		t.Fatal(err)
	}
	put := func(object string, content []byte) {
		if err := b.store.Put(t.Context(), object, content); err != nil {
			t.Fatal(err)
		}
	}
	both := slices.Concat(old, pki.EncodeCertificate(next.Certificate))
	b.mustMint(t, "kube-apiserver minted", "kube-controller-manager minted", "kube-scheduler minted", "konnectivity-server minted", "hardtack-controller minted", "admin minted")
	// Both are trusted, in the store and by new machines' user data; the old one signs.
	put(pki.KubernetesCA+pki.Crt, both)
	put(pki.PublicKubernetes, both)
	b.mustMint(t, "kube-apiserver minted", "kube-controller-manager minted", "kube-scheduler minted", "konnectivity-server minted", "hardtack-controller minted", "admin minted")
	if got := b.read(t, "kube-apiserver", "ca.crt"); !bytes.Equal(got, both) {
		t.Errorf("the API server trusts %s", got)
	}
	if got := b.read(t, "kube-controller-manager", "client-ca.crt"); !bytes.Equal(got, old) {
		t.Errorf("the old authority is to sign, and %s does", got)
	}
	items, err := authority.Inspect(t.Context(), b.store, created)
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range items {
		if i.Problem != "" || i.Object == pki.KubernetesCA+pki.Crt && !strings.Contains(i.Fingerprint, ", "+pki.Fingerprint(next.Certificate)) {
			t.Errorf("%+v", i)
		}
	}
	made, err := authority.Create(t.Context(), b.store, conf().Info(), created)
	if err != nil || slices.ContainsFunc(made, func(m authority.Made) bool { return m.Action != authority.Kept }) {
		t.Errorf("pki create: %v %v", made, err)
	}
	// The new one signs. A machine whose user data has only the old one would not trust it, and says so.
	put(pki.KubernetesCA+pki.Key, keyPEM)
	if _, err := b.mint(t.Context()); reason.Of(err) != reason.Untrusted {
		t.Errorf("%q: %v", reason.Of(err), err)
	}
	b.write(t, machine.CAPath, both)
	b.mustMint(t, "kube-apiserver minted", "kube-controller-manager minted", "kube-scheduler minted", "konnectivity-server minted", "hardtack-controller minted", "admin minted")
	if got := b.read(t, "kube-controller-manager", "client-ca.crt"); !bytes.Equal(got, pki.EncodeCertificate(next.Certificate)) {
		t.Errorf("the new authority is to sign, and %s does", got)
	}
	// A minion with both in its user data trusts both.
	got, err := b.bootstrap(t.Context(), 0)
	if err != nil || !strings.Contains(got.Authority, ", "+pki.Fingerprint(next.Certificate)) {
		t.Errorf("%v: %+v", err, got)
	}
	if got := b.read(t, "kubelet", "ca.crt"); !bytes.Equal(got, both) {
		t.Errorf("the kubelet trusts %s", got)
	}
	// Only the new one is left.
	put(pki.KubernetesCA+pki.Crt, pki.EncodeCertificate(next.Certificate))
	put(pki.PublicKubernetes, pki.EncodeCertificate(next.Certificate))
	b.mustMint(t, "kube-apiserver minted", "kube-controller-manager minted", "kube-scheduler minted", "konnectivity-server minted", "hardtack-controller minted", "admin minted")
}
