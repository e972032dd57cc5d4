package pki_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/pki"
)

type kubeconfigCluster struct {
	Server string `json:"server"`
	Name   string `json:"tls-server-name"`
	CAFile string `json:"certificate-authority"`
	CA     string `json:"certificate-authority-data"`
}

type kubeconfigUser struct {
	Name            string `json:"-"`
	CertificateFile string `json:"client-certificate"`
	KeyFile         string `json:"client-key"`
	Certificate     string `json:"client-certificate-data"`
	Key             string `json:"client-key-data"`
}

// readKubeconfig finds the cluster and the user of the current context by their names. Neither name may be empty: client-go
// refuses that (clientcmd/validation.go).
func readKubeconfig(t *testing.T, data []byte) (cluster kubeconfigCluster, user kubeconfigUser) {
	t.Helper()
	var config struct {
		Current  string `json:"current-context"`
		Contexts []struct {
			Name    string                         `json:"name"`
			Context struct{ Cluster, User string } `json:"context"`
		} `json:"contexts"`
		Clusters []struct {
			Name    string            `json:"name"`
			Cluster kubeconfigCluster `json:"cluster"`
		} `json:"clusters"`
		Users []struct {
			Name string         `json:"name"`
			User kubeconfigUser `json:"user"`
		} `json:"users"`
	}
	if err := json.Unmarshal(data, &config); err != nil || len(config.Contexts) != 1 || len(config.Clusters) != 1 || len(config.Users) != 1 {
		t.Fatalf("%v\n%s", err, data)
	}
	context := config.Contexts[0]
	if context.Name == "" || context.Name != config.Current || context.Context.Cluster == "" || context.Context.User == "" ||
		context.Context.Cluster != config.Clusters[0].Name || context.Context.User != config.Users[0].Name {
		t.Fatalf("the current context leads to no cluster or user:\n%s", data)
	}
	user = config.Users[0].User
	user.Name = config.Users[0].Name
	return config.Clusters[0].Cluster, user
}

// TestKubeconfigsOfDaemons: a daemon reaches the API server of its own machine, by the files beside its kubeconfig, as the user
// of its certificate.
func TestKubeconfigsOfDaemons(t *testing.T) {
	clients := 0
	for _, b := range mastersBundles(t) {
		if !slices.ContainsFunc(b.Files, func(f pki.File) bool { return f.Name == "kubeconfig" }) {
			continue
		}
		clients++
		files, err := b.Mint(now)
		if err != nil {
			t.Fatal(err)
		}
		cluster, user := readKubeconfig(t, content(t, files, "kubeconfig"))
		if cluster.Server != "https://127.0.0.1:443" || cluster.CAFile != b.Path("ca.crt") {
			t.Errorf("%s: the server is %s, its authority %s", b.Dir, cluster.Server, cluster.CAFile)
		}
		if user.CertificateFile != b.Path("client.crt") || user.KeyFile != b.Path("client.key") {
			t.Errorf("%s: the certificate is %s, its key %s", b.Dir, user.CertificateFile, user.KeyFile)
		}
		if c := parsePair(t, files, "client.crt"); c.Subject.CommonName != user.Name {
			t.Errorf("%s: the user is %s, and its certificate says %s", b.Dir, user.Name, c.Subject)
		}
	}
	if clients < 4 {
		t.Errorf("only %d daemons of a master are clients of its API server", clients)
	}
}

// TestServerName: a server that is reached by another address than its certificate's is known by the name that the file says.
func TestServerName(t *testing.T) {
	config := pki.Kubeconfig{Server: "https://127.0.0.1:6443", ServerName: "masters.demo.k8s", CA: []byte("x"), User: "u"}
	cluster, user := readKubeconfig(t, config.Render())
	if cluster.Server != "https://127.0.0.1:6443" || cluster.Name != "masters.demo.k8s" || user.Name != "u" {
		t.Errorf("%+v, %+v", cluster, user)
	}
}

// TestKeysOfMasters: what the controller manager signs tokens with, every API server accepts; and the API server encrypts with the
// cluster's key.
func TestKeysOfMasters(t *testing.T) {
	a := mastersAuthorities(t)
	bundles, err := pki.MastersBundles(a, self(), api())
	if err != nil {
		t.Fatal(err)
	}
	file := func(dir, name string) []byte {
		t.Helper()
		i := slices.IndexFunc(bundles, func(b pki.Bundle) bool { return b.Dir == dir })
		return content(t, bundles[i].Files, name)
	}
	for _, dir := range []string{pki.DirAPIServer, pki.DirControllerManager} {
		keys, err := pki.ParseAccountKeys(file(pki.DirAPIServer, "service-account.pub"), file(dir, "service-account.key"))
		if err != nil || !keys.Key.Equal(a.ServiceAccount.Key) || len(keys.Public) != len(a.ServiceAccount.Public) {
			t.Errorf("%s signs with a key that is not accepted: %v", dir, err)
		}
	}
	want, err := pki.EncryptionConfig(a.Encryption)
	if err != nil {
		t.Fatal(err)
	}
	if got := file(pki.DirAPIServer, "encryption.yaml"); !bytes.Equal(got, want) {
		t.Errorf("the configuration of the encryption has %d bytes, want %d", len(got), len(want))
	}
}

// TestAtStart: a daemon is started again for the files that it reads only when it starts, and for no others; renew.go has the
// sources. Each is a file of its bundle, and whoever starts daemons again knows it.
func TestAtStart(t *testing.T) {
	a := mastersAuthorities(t)
	bundles, err := pki.MastersBundles(a, self(), api())
	if err != nil {
		t.Fatal(err)
	}
	want := map[string][]string{
		pki.DirEtcd:              {"ca.crt", "peer-ca.crt"},
		pki.DirAPIServer:         {"etcd-ca.crt", "kubelet-ca.crt", "service-account.key", "service-account.pub"},
		pki.DirControllerManager: {"ca.crt", "service-account.key"},
		pki.DirScheduler:         {"ca.crt"},
		pki.DirController:        {"ca.crt"},
		// Each run of its commands reads all of it.
		pki.DirAdmin: nil,
		// It reads all of it for each connection.
		pki.DirTunnelServer: nil,
		// Its unit applies the add-ons, and hands these to a pod.
		pki.DirAddons: {"ca.crt", "kubelet-ca.crt", "metrics-server.crt"},
	}
	for _, b := range append(slices.Concat(bundles, etcdBundles(t, "a")), pki.MetricsServerBundle(a)) {
		files, err := b.Mint(now)
		if err != nil {
			t.Fatal(err)
		}
		if wanted, known := want[b.Dir]; !known || !slices.Equal(slices.Sorted(slices.Values(b.AtStart)), wanted) {
			t.Errorf("%s is started again for %v, want %v", b.Dir, b.AtStart, wanted)
		}
		for _, name := range b.AtStart {
			if !slices.ContainsFunc(files, func(f pki.File) bool { return f.Name == name }) {
				t.Errorf("%s has no file %s", b.Dir, name)
			}
		}
		if len(b.AtStart) > 0 && !slices.Contains(pki.Daemons(), b.Dir) {
			t.Errorf("nobody starts %s again", b.Dir)
		}
		if _, err := b.Mint(now.Add(-time.Hour)); len(b.Leaves) > 0 && !errors.Is(err, pki.ErrClock) {
			t.Errorf("%s is minted before its authorities begin: %v", b.Dir, err)
		}
	}
}

// TestNamesOfAMember: a machine that has no name yet, or that of every machine, has no name twice and no empty one.
func TestNamesOfAMember(t *testing.T) {
	for hostname, want := range map[string][]string{
		"": {"localhost"}, "localhost": {"localhost"}, "ip-10-1-0-12": {"localhost", "ip-10-1-0-12"},
	} {
		m := pki.Machine{Cluster: "demo", Hostname: hostname, Addresses: []netip.Addr{netip.MustParseAddr("10.1.0.12")}}
		a := newAuthority(t, "demo", now)
		for _, l := range pki.EtcdBundles(pki.EtcdAuthorities{Client: a, Peer: a}, m, "")[0].Leaves {
			if !slices.Equal(l.Profile.Names, want) {
				t.Errorf("%q: the names are %q, want %q", hostname, l.Profile.Names, want)
			}
		}
	}
}
