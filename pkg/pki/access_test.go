package pki_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/hardtack/packer-plugin-hardtack/pkg/pki"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// TestMayRead: an object, what begins with its name, and what is below a directory; no neighbour whose name begins alike.
func TestMayRead(t *testing.T) {
	access := pki.Access{Read: []string{"public/", "masters/kubernetes-ca.crt", "token"}}
	for object, want := range map[string]bool{
		"public/": true, "public/a/b": true, "public": true, "masters/kubernetes-ca": true, "masters/kubernetes-ca.crt": true, "token": true,
		"publicity": false, "masters/kubernetes-ca.crt.old": false, "tokens": false, "masters/kubernetes-ca.key": false, "etcd/peer-ca": false,
	} {
		if got := access.MayRead(object); got != want {
			t.Errorf("%s: %v", object, got)
		}
	}
}

// TestAccessOf: each role reads what its daemons cannot start without, and only etcd's members record decisions, which nobody changes.
func TestAccessOf(t *testing.T) {
	for r, needs := range map[role.Role][]string{
		role.Masters: {
			pki.KubernetesCA + pki.Key, pki.FrontProxyCA + pki.Key, pki.ServiceAccount + pki.Key, pki.EncryptionKey, pki.EtcdClientCA + pki.Key,
			pki.PublicKubernetes,
		},
		role.Minions: {pki.PublicKubernetes, pki.BootstrapToken, pki.RegistryObject("docker.io")},
		role.Etcd:    {pki.EtcdClientCA + pki.Key, pki.EtcdPeerCA + pki.Key, pki.PublicInfo},
	} {
		a := pki.AccessOf(r)
		for _, object := range needs {
			if !covers(a.Read, object) {
				t.Errorf("%s cannot read %s", r, object)
			}
		}
		record := role.EtcdRecords + "a"
		if covers(a.Create, record) != (r == role.Etcd) || covers(a.Write, record) {
			t.Errorf("%s creates %v and writes %v", r, a.Create, a.Write)
		}
	}
}

// TestOfMember: a member of etcd writes the state of no other member, and the access of the others stays what it is.
func TestOfMember(t *testing.T) {
	all := pki.AccessOf(role.Etcd)
	if !covers(all.Write, role.EtcdStatus+"b") {
		t.Fatal("nobody writes the state of a member, so that this test shows nothing")
	}
	a := all.OfMember("a")
	if !covers(a.Write, role.EtcdStatus+"a") || covers(a.Write, role.EtcdStatus+"b") {
		t.Errorf("the member a writes %v", a.Write)
	}
	if !covers(all.Write, role.EtcdStatus+"b") || !covers(pki.AccessOf(role.Etcd).Write, role.EtcdStatus+"b") {
		t.Error("the access of all members has changed with it")
	}
	if !slices.Equal(all.OfMember("").Write, all.Write) {
		t.Errorf("a machine without a name writes %v", all.OfMember("").Write)
	}
	// A machine of two roles has the access of both, and names itself in no other object than its state.
	both := pki.AccessOfAll(role.NewSet(role.Masters, role.Etcd))
	if a := both.OfMember("a"); !covers(a.Write, pki.BootstrapToken) || !covers(a.Write, role.EtcdStatus+"a") || covers(a.Write, role.EtcdStatus+"b") {
		t.Errorf("the member a that is a master too writes %v", a.Write)
	}
	for _, r := range []role.Role{role.Masters, role.Etcd} {
		for _, lists := range [][2][]string{{pki.AccessOf(r).Read, both.Read}, {pki.AccessOf(r).Write, both.Write}, {pki.AccessOf(r).Create, both.Create}} {
			for _, object := range lists[0] {
				if !slices.Contains(lists[1], object) {
					t.Errorf("%s is missing in %v", object, lists[1])
				}
			}
		}
	}
}

// TestSecrets: nothing that is secret is public, and every key that is made is secret.
func TestSecrets(t *testing.T) {
	secret := pki.Secrets()
	for _, object := range append(pki.Authorities(), pki.ServiceAccount, pki.EncryptionKey, pki.BootstrapToken, role.Registries) {
		if !slices.Contains(secret, object) {
			t.Errorf("%s is not secret", object)
		}
	}
	for _, object := range secret {
		if strings.HasPrefix(object, role.Public) {
			t.Errorf("%s is public", object)
		}
	}
	if got := pki.AuthorityName("demo", pki.EtcdPeerCA) + ", " + pki.AuthorityName("demo", pki.FrontProxyCA); got != "demo etcd-peer-ca, demo front-proxy-ca" {
		t.Errorf("authorities are named %s", got)
	}
}
