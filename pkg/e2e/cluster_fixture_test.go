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
	"maps"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/hardtack/packer-plugin-hardtack/pkg/lab"
	"github.com/hardtack/packer-plugin-hardtack/pkg/lab/qemu"
	"github.com/hardtack/packer-plugin-hardtack/pkg/lab/vnet"
	ec2 "github.com/hardtack/packer-plugin-hardtack/pkg/lab/vnet/metadata"
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
	// clusterStore is the directory of the store on the machine. It is below /run, so that it is gone when the machine
	// is.
	clusterStore = "/run/hardtack/store"
	// clusterBound is a limit that no run should reach: starting and testing a cluster on two emulated processors of a
	// busy computer takes less.
	clusterBound = 50 * time.Minute
	// shellPort is the port of a root shell on the machine. Only the gateway, which is this test, can connect to it.
	shellPort = 7
)

const (
	shellSocket  = "[Socket]\nListenStream=%d\nAccept=yes\n"
	shellService = "[Service]\nExecStart=/bin/bash -s\nStandardInput=socket\nEnvironment=LC_ALL=C SYSTEMD_COLORS=0 PATH=/usr/sbin:/usr/bin\n"
	// The agent tries again until this has unpacked the store. It also sets the machine's name: no metadata service
	// names the machine, and networkd may not set the name from DHCP, because hostnamed allows only root where there
	// is no polkit.
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
	// again powers the machine on again, for one whose emulator has crashed it.
	again func() error
	up    bool   // its node was ready once
	bench []byte // kube-bench, packed
	addr  netip.Addr
	// api is the address of the API server on this computer. It is a forwarded port, since parts of client-go accept
	// no dialer.
	api net.Addr
	// ca is the cluster's authority with its key: the test acts as the operator.
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
	network, err := vnet.New(ctx, vnet.Config{Domain: "internal", Resolver: names{c.addr}, Log: slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := network.Close(); err != nil {
			t.Error(err)
		}
	})
	c.network = network
	c.serveMetadata(t)
	if c.api, err = network.Forward(ctx, "127.0.0.1:0", vnet.To(netip.AddrPortFrom(c.addr, 443))); err != nil {
		t.Fatal(err)
	}
	userData, packedStore := c.userData(ctx, t)
	credentials := map[string][]byte{
		"hardtack.userdata":                         userData,
		"hardtack.store":                            packedStore,
		"systemd.extra-unit.hardtack-store.service": []byte(storeService),
	}
	host, err := qemu.Detect()
	if err != nil {
		t.Fatal(err)
	}
	if !host.KVM {
		lab.Emulated(credentials)
	}
	c.powerOn(ctx, t, network, "i-e2e", 3072, credentials, "hardtack-store.service")
	return c
}

// powerOn connects the machine to the network and starts it. It has a shell for the test, the credentials, and the units
// wants, which its boot starts. If the test fails, the console is kept as build/NAME.console.
func (c *cluster) powerOn(ctx context.Context, t *testing.T, network *vnet.Network, name string, memory int, credentials map[string][]byte, wants ...string) {
	t.Helper()
	port, err := network.Attach(vnet.Machine{Name: name, Addr: c.addr})
	if err != nil {
		t.Fatal(err)
	}
	wants = append(wants, "hardtack-shell.socket")
	maps.Copy(credentials, map[string][]byte{
		"systemd.extra-unit.hardtack-shell.socket":   fmt.Appendf(nil, shellSocket, shellPort),
		"systemd.extra-unit.hardtack-shell@.service": []byte(shellService),
		"systemd.unit-dropin.multi-user.target":      []byte("[Unit]\nWants=" + strings.Join(wants, " ") + "\n"),
	})
	config := bakedMachine(t)
	config.Name, config.Memory, config.CPUs, config.Credentials = "hardtack-e2e-"+name, memory, 2, credentials
	config.Network = qemu.Network{Kind: qemu.Stream, Socket: port.Socket(), MAC: vnet.MACOf(c.addr).String()}
	if c.machine, err = qemu.Start(ctx, config); err != nil {
		t.Fatal(err)
	}
	c.again = func() error {
		// It says how the machine ended, which is known.
		_ = c.machine.Stop()
		second, err := qemu.Start(ctx, config)
		if err == nil {
			c.machine = second
		}
		return err
	}
	t.Cleanup(func() {
		if err := c.machine.Stop(); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			keep(t, name+".console", c.machine.Console().Bytes())
			// Of a machine that came up, the failed part tells more: the console of a whole test only hides it.
			if !c.up {
				t.Logf("the console of %s, which is in build/%s.console, ends with:\n%s", name, name, c.machine.Console().Tail(consoleTail))
			}
		}
	})
}

// serveMetadata answers every request to the metadata service's address, as no machine of this kind expects it to: what
// counts is who gets there.
func (c *cluster) serveMetadata(t *testing.T) {
	t.Helper()
	listener, err := c.network.Listen(ec2.Address())
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintln(w, "the machine's credentials")
	})}
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() { _ = server.Close() })
}

// consoleTail is how many lines of the console a failure shows.
const consoleTail = 60

// userData makes the machine's user data from the operator's document, and packs the cluster's store. A real store is
// a service, whose keys are never sent around.
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
		"addons": []string{pki.MetricsServer},
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

// operator reads the cluster's authority, and makes an administrator's client of the API server.
func (c *cluster) operator(ctx context.Context, t *testing.T, secrets *store.Dir) {
	t.Helper()
	c.ca = readAuthority(ctx, t, secrets)
	me, err := c.ca.Issue(pki.Profile{Name: "e2e", Groups: []string{pki.GroupAdmins}, Usage: pki.Client, Life: time.Hour * 2}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	c.admin = c.as(me.Certificate, me.Key)
	if c.kube, err = kube.New(c.admin); err != nil {
		t.Fatal(err)
	}
}

// readAuthority is the cluster's authority of clients, with its key.
func readAuthority(ctx context.Context, t *testing.T, secrets store.Store) pki.Authority {
	t.Helper()
	var pair [2][]byte
	for i, suffix := range []string{pki.Crt, pki.Key} {
		var err error
		if pair[i], err = secrets.Get(ctx, pki.KubernetesCA+suffix); err != nil {
			t.Fatal(err)
		}
	}
	ca, err := pki.ParseAuthority(pair[0], pair[1])
	if err != nil {
		t.Fatal(err)
	}
	return ca
}

// as returns a client configuration with that certificate, or an anonymous one without it.
func (c *cluster) as(certificate, key []byte) *rest.Config {
	return &rest.Config{
		Host: "https://" + c.api.String(),
		TLSClientConfig: rest.TLSClientConfig{ServerName: "masters." + clusterName + ".k8s",
			CAData: pki.EncodeCertificate(c.ca.Certificate), CertData: certificate, KeyData: key},
	}
}

// newClient is a cluster of which the test has a kubeconfig, and no machine.
func newClient(t *testing.T, kubeconfig []byte) *cluster {
	t.Helper()
	c := &cluster{}
	var err error
	if c.admin, err = clientcmd.RESTConfigFromKubeConfig(kubeconfig); err != nil {
		t.Fatal(err)
	}
	if c.kube, err = kube.New(c.admin); err != nil {
		t.Fatal(err)
	}
	return c
}

// apply applies a manifest of testdata/cluster.
func (c *cluster) apply(ctx context.Context, t *testing.T, name string, values map[string]string) {
	t.Helper()
	one := os.DirFS(filepath.Join("testdata", "cluster", name))
	objects, err := addons.Load(values, nil, one)
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
	// The script is decoded completely before it runs, so that no program in it reads the rest of it as its input.
	fmt.Fprintf(conn, "exec bash -c \"$(echo %s | base64 -d)\" 2>&1 </dev/null\n", base64.StdEncoding.EncodeToString([]byte(script)))
	if _, err := io.Copy(&out, conn); err != nil {
		t.Fatalf("running %q: %v", script, err)
	}
	return strings.TrimSpace(out.String())
}
