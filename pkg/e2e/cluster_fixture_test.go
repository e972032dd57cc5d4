package e2e

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"
	"k8s.io/client-go/rest"

	"github.com/hardtack/packer-plugin-hardtack/pkg/lab/qemu"
	"github.com/hardtack/packer-plugin-hardtack/pkg/lab/vnet"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/addons"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/kube"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki/authority"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki/store"
	"github.com/hardtack/packer-plugin-hardtack/pkg/spec"
)

const (
	clusterName = "e2e"
	clusterNode = "ip-10-1-0-10"
	// clusterStore is where the machine keeps its store: below /run, so that it goes with the machine's power.
	clusterStore = "/run/hardtack/store"
	// clusterBound is longer than a cluster takes to start and to be tested, on two emulated processors that others share.
	clusterBound = 50 * time.Minute
	// shellPort is where the machine answers with a shell of root's. Only the gateway, which is this test, finds it.
	shellPort = 7
)

const (
	shellSocket  = "[Socket]\nListenStream=%d\nAccept=yes\n"
	shellService = "[Service]\nExecStart=/bin/bash -s\nStandardInput=socket\nEnvironment=LC_ALL=C SYSTEMD_COLORS=0 PATH=/usr/sbin:/usr/bin\n"
	// The agent finds no store before this has run, and tries again. The machine has no metadata service that names it,
	// and networkd may not set the name from DHCP: hostnamed allows only root where there is no polkit.
	storeService = `[Unit]
DefaultDependencies=no
After=systemd-tmpfiles-setup.service
[Service]
LoadCredential=hardtack.store
ExecStart=/bin/sh -c 'echo ` + clusterNode + ` >/proc/sys/kernel/hostname; mkdir -p ` + clusterStore + ` && tar -xf %d/hardtack.store -C ` + clusterStore + ` && chmod -R go= ` + clusterStore + `'
`
)

// cluster is one machine that is a whole cluster.
type cluster struct {
	network *vnet.Network
	machine *qemu.Machine
	addr    netip.Addr
	// api is the address of the API server on this computer: a port, since not all of client-go accepts a dialer.
	api net.Addr
	// ca is the cluster's, with its key: the test is the operator.
	ca    pki.Authority
	admin *rest.Config
	kube  *kube.Client
}

// names answers as a cluster's private zone.
type names struct{ addr netip.Addr }

func (n names) Resolve(_ context.Context, q vnet.Question) (vnet.Reply, error) {
	if q.Name == "masters."+clusterName+".k8s." {
		if q.Type == "A" {
			return vnet.Reply{Values: []string{n.addr.String()}, TTL: 5}, nil
		}
		return vnet.Reply{TTL: 5}, nil
	}
	return vnet.Reply{Unknown: true}, nil
}

// startCluster powers the machine on. It waits for nothing.
func startCluster(ctx context.Context, t *testing.T) *cluster {
	t.Helper()
	c := &cluster{addr: netip.MustParseAddr("10.1.0.10")}
	network, err := vnet.New(ctx, vnet.Config{Domain: "internal", Resolver: names{c.addr}, Log: slog.New(slog.NewTextHandler(t.Output(), nil))})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := network.Close(); err != nil {
			t.Error(err)
		}
	})
	c.network = network
	if c.api, err = network.Forward(ctx, "127.0.0.1:0", vnet.To(netip.AddrPortFrom(c.addr, 443))); err != nil {
		t.Fatal(err)
	}
	port, err := network.Attach(vnet.Machine{Name: "i-e2e", Addr: c.addr})
	if err != nil {
		t.Fatal(err)
	}
	userData, packedStore := c.userData(ctx, t)
	c.machine, err = qemu.Start(ctx, qemu.Config{
		Name: "hardtack-e2e-cluster", Memory: 3072, CPUs: 2, Disks: []qemu.Disk{{Path: image(t), Format: "qcow2"}},
		Network: qemu.Network{Kind: qemu.Stream, Socket: port.Socket(), MAC: vnet.MACOf(c.addr).String()},
		Credentials: map[string][]byte{
			"hardtack.userdata":                          userData,
			"hardtack.store":                             packedStore,
			"systemd.extra-unit.hardtack-store.service":  []byte(storeService),
			"systemd.extra-unit.hardtack-shell.socket":   fmt.Appendf(nil, shellSocket, shellPort),
			"systemd.extra-unit.hardtack-shell@.service": []byte(shellService),
			"systemd.unit-dropin.multi-user.target":      []byte("[Unit]\nWants=hardtack-shell.socket hardtack-store.service\n"),
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.machine.Stop(); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Logf("the machine's console ends with:\n%s", c.machine.Console().Tail(consoleTail))
		}
	})
	return c
}

// consoleTail is how many lines of the console a failure shows.
const consoleTail = 60

// userData is that of the one machine, from the operator's document. Beside it is the cluster's store, packed: a real one
// is a service, and its keys travel nowhere.
func (c *cluster) userData(ctx context.Context, t *testing.T) (data, packedStore []byte) {
	t.Helper()
	dir := t.TempDir()
	secrets := store.NewDir(dir)
	if _, err := authority.Create(ctx, secrets, completed(t, "apiVersion: hardtack.dev/v1\nkind: Cluster\nname: "+clusterName+"\n").Info(), time.Now()); err != nil {
		t.Fatal(err)
	}
	c.operator(ctx, t, secrets)
	var archive bytes.Buffer
	packed := tar.NewWriter(&archive)
	if err := errors.Join(packed.AddFS(os.DirFS(dir)), packed.Close()); err != nil {
		t.Fatal(err)
	}
	document, err := yaml.Marshal(map[string]any{
		"apiVersion": spec.APIVersion, "kind": "Cluster", "name": clusterName, "store": "dir:" + clusterStore,
		"groups": []any{map[string]any{"name": "all", "roles": []string{"masters", "etcd", "minions"}, "size": 1,
			// As on a control plane that has minions beside it.
			"node": map[string]any{"taints": []string{"node-role.kubernetes.io/control-plane=:NoSchedule"}}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return userDataOfAll(t, document, pki.EncodeCertificate(c.ca.Certificate)), archive.Bytes()
}

// userDataOfAll makes the user data of the group "all".
func userDataOfAll(t *testing.T, document, ca []byte) []byte {
	t.Helper()
	data, err := completed(t, string(document)).UserData("all", ca)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// operator reads the cluster's authority, and makes the test its administrator.
func (c *cluster) operator(ctx context.Context, t *testing.T, secrets *store.Dir) {
	t.Helper()
	var pair [2][]byte
	for i, suffix := range []string{pki.Crt, pki.Key} {
		var err error
		if pair[i], err = secrets.Get(ctx, pki.KubernetesCA+suffix); err != nil {
			t.Fatal(err)
		}
	}
	var err error
	if c.ca, err = pki.ParseAuthority(pair[0], pair[1]); err != nil {
		t.Fatal(err)
	}
	me, err := c.ca.Issue(pki.Profile{Name: "e2e", Groups: []string{pki.GroupAdmins}, Usage: pki.Client, Life: time.Hour * 2}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	c.admin = c.as(me.Certificate, me.Key)
	if c.kube, err = kube.New(c.admin); err != nil {
		t.Fatal(err)
	}
}

// as returns a client of the API server with that certificate, or anonymous without one.
func (c *cluster) as(certificate, key []byte) *rest.Config {
	return &rest.Config{
		Host: "https://" + c.api.String(),
		TLSClientConfig: rest.TLSClientConfig{ServerName: "masters." + clusterName + ".k8s",
			CAData: pki.EncodeCertificate(c.ca.Certificate), CertData: certificate, KeyData: key},
	}
}

// apply applies a manifest of testdata/cluster.
func (c *cluster) apply(ctx context.Context, t *testing.T, name string, values map[string]string) {
	t.Helper()
	one := os.DirFS(filepath.Join("testdata", "cluster", name))
	objects, err := addons.Load(values, one)
	if err != nil {
		t.Fatal(err)
	}
	if len(objects) == 0 {
		t.Fatalf("testdata/cluster/%s has no object", name)
	}
	if err := addons.Apply(ctx, c.kube, objects, slog.New(slog.NewTextHandler(t.Output(), nil))); err != nil {
		t.Fatal(err)
	}
}

// shell runs a script as root on the machine, and returns its output.
func (c *cluster) shell(ctx context.Context, t *testing.T, script string) string {
	t.Helper()
	conn, err := c.network.Dial(ctx, netip.AddrPortFrom(c.addr, shellPort))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }() // all of it has been read
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	var out bytes.Buffer
	// The script is decoded first, so that no program in it eats the rest of it.
	fmt.Fprintf(conn, "exec bash -c \"$(echo %s | base64 -d)\" 2>&1 </dev/null\n", base64.StdEncoding.EncodeToString([]byte(script)))
	if _, err := io.Copy(&out, conn); err != nil {
		t.Fatalf("running %q: %v", script, err)
	}
	return strings.TrimSpace(out.String())
}
