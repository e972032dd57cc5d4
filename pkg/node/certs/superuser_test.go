package certs_test

import (
	"testing"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/hardtack/packer-plugin-hardtack/pkg/node/certs"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/reason"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki/store"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// TestSuperuser: what it gets ends within minutes, and a store without the authority's key gives none.
func TestSuperuser(t *testing.T) {
	b := newBench(t, role.Masters)
	data, err := certs.Superuser(t.Context(), b.store, "https://127.0.0.1:443", b.now)
	if err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.RESTConfigFromKubeConfig(data)
	if err != nil {
		t.Fatal(err)
	}
	c, err := pki.ParseCertificate(config.CertData)
	if err != nil {
		t.Fatal(err)
	}
	if groups := c.Subject.Organization; config.Host != "https://127.0.0.1:443" || len(groups) != 1 || groups[0] != pki.GroupAdmins || c.NotAfter.After(b.now.Add(pki.FirstLife)) {
		t.Errorf("of %s, groups %q, until %v", config.Host, groups, c.NotAfter)
	}
	if _, err := certs.Superuser(t.Context(), store.NewDir(t.TempDir()), "https://127.0.0.1:443", b.now); reason.Of(err) != reason.Store {
		t.Errorf("without a store: %v", err)
	}
}
