package e2e

import (
	_ "embed"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/pki"
	"github.com/hardtack/packer-plugin-hardtack/pkg/spec"
)

var (
	//go:embed testdata/machine/sources
	sourcesScript []byte
	//go:embed testdata/machine/shares
	sharesScript []byte
)

// awkward is a value with every character that systemd could interpret, in a file of variables or where it splits a
// variable into words.
const awkward = `/var/lib/a b  'c "d \e $HOME %n #f;g`

// hooked is a machine with units in its user data: hooks before and after one of the image's units, and a flag that
// can only be changed in the unit itself. Outside a cloud its store is not known, so that no unit waits for it.
const hooked = `apiVersion: hardtack.dev/v1
kind: Cluster
name: demo
groups:
  - {name: all, roles: [masters, etcd, minions]}
machines:
  sysctls: {net.core.somaxconn: 5000, -kernel.no_such_setting: 1}
  kernelModules:
    - {name: nbd, parameters: nbds_max=3}
    - {name: -no_such_module}
  nofile: 2097152
  trustAnchors: [ANCHOR]
network: {nonMasqueradeCIDRs: [172.20.0.0/16]}
proxy: {http: "http://proxy.test:3128", noProxy: [.test]}
fileAssets:
  - {path: /etc/e2e/leaf.pem, base64: LEAF}
  - {path: /etc/e2e/sources, mode: "0755", base64: SOURCES}
  - {path: /etc/e2e/shares, mode: "0755", base64: SHARES}
kubeAPIServer:
  flags:
    enable-admission-plugins: [NodeRestriction, AlwaysPullImages]
kubelet:
  flags:
    v: 1
    root-dir: '/var/lib/a b  ''c "d \e $HOME %n #f;g'
hooks:
  - name: told-before
    before: [containerd]
    manifest: |
      Type=oneshot
      ExecStart=/bin/sh -c 'echo "told: before, containerd is $(systemctl is-active containerd.service)"'
  - name: told-after
    after: [containerd]
    roles: [minions]
    manifest: |
      Type=oneshot
      ExecStart=/bin/sh -c 'echo "told: after, containerd is $(systemctl is-active containerd.service)"'
      ExecStart=/bin/sh -c 'echo "told: $(systemctl show --property=ExecStart kube-apiserver.service)"'
  - name: told-words
    manifest: |
      Type=oneshot
      EnvironmentFile=/etc/sysconfig/kubernetes-minions
      ExecStart=/usr/bin/printf 'told: <%%s>\n' $KUBELET_ARGS
  - name: told-options
    after: [containerd]
    manifest: |
      Type=oneshot
      ExecStart=/bin/sh -c 'echo "told: somaxconn $(cat /proc/sys/net/core/somaxconn)"'
      ExecStart=/bin/sh -c 'echo "told: nbds_max $(cat /sys/module/nbd/parameters/nbds_max)"'
      ExecStart=/bin/sh -c 'echo "told: limits $(systemctl show --property=LimitNOFILE --value containerd.service) $(cat /proc/sys/fs/nr_open)"'
      ExecStart=/bin/sh -c 'echo "told: options $(systemctl is-active hardtack-options.service)"'
      ExecStart=/bin/sh -c 'cd /lib/modules/*; echo "told: modules $(cat modules.dep modules.builtin | sed "s/[.]ko.*//; s#.*/##" | tr - _ | sort -u | tr "\\n" " ")"'
      ExecStart=/bin/sh -c 'echo "told: anchor $(openssl verify -CApath /etc/ssl/certs /etc/e2e/leaf.pem)"'
      ExecStart=/bin/sh -c 'echo "told: proxy of containerd $(tr "\\0" " " < /proc/$(systemctl show --property=MainPID --value containerd.service)/environ)"'
      ExecStart=/etc/e2e/sources
  - name: told-shares
    after: [told-options]
    manifest: |
      Type=oneshot
      ExecStart=/etc/e2e/shares
  - name: told-never
    enabled: false
    manifest: |
      ExecStart=/bin/echo 'told: never'
`

// TestUnitsOfUserData boots a machine with units in its user data. systemd loads its units before the user data is
// read; those units must run all the same, in the order that they ask for.
func TestUnitsOfUserData(t *testing.T) {
	t.Parallel()
	needMachines(t, 8*time.Minute)
	anchor, leaf := authorityAndLeaf(t)
	code := base64.StdEncoding.EncodeToString
	document := strings.NewReplacer("ANCHOR", strconv.Quote(string(anchor)), "LEAF", code(leaf), "SOURCES", code(sourcesScript), "SHARES", code(sharesScript)).Replace(hooked)
	b := boot(t, Asked{
		UserData: string(userDataOfAll(t, []byte(document), nil)),
		Until:    []string{"told-before.service", "told-after.service", "told-words.service", "told-options.service", "told-shares.service"},
	})
	b.noCycle(t)
	for _, want := range []string{
		"told: before, containerd is inactive",
		"told: after, containerd is active",
		"--enable-admission-plugins=NodeRestriction,AlwaysPullImages",
		"told: <--root-dir=" + awkward + ">",
		"told: <--v=1>",
		"told: somaxconn 5000",
		"told: nbds_max 3",
		"told: limits 2097152 2097152",
		"told: options active",
		"told: anchor /etc/e2e/leaf.pem: OK",
		// The pod's own address only where the document says so; the node's elsewhere.
		"10.244.7.2 . 172.20.0.2",
		"172.21.0.1 . 172.21.0.2",
	} {
		if !strings.Contains(b.Journal, want) {
			t.Errorf("the journal has no %q", want)
		}
	}
	for _, not := range []string{"told: never", "--enable-admission-plugins=NodeRestriction ;", "--enable-admission-plugins=NodeRestriction "} {
		if strings.Contains(b.Journal, not) {
			t.Errorf("the journal has %q", not)
		}
	}
	_, environment, _ := strings.Cut(b.Journal, "told: proxy of containerd ")
	environment, _, _ = strings.Cut(environment, "\n")
	for _, want := range []string{"HTTP_PROXY=http://proxy.test:3128", "HTTPS_PROXY=http://proxy.test:3128", "169.254.0.0/16", "10.244.0.0/14", ",.test"} {
		if !strings.Contains(environment, want) {
			t.Errorf("containerd's environment has no %q: %s", want, environment)
		}
	}
	b.daemonsFirst(t)
	b.told(t, "modules", spec.KernelModules())
}

// told asserts that the names of a line of the journal are those that documents are checked by.
func (b *Booted) told(t *testing.T, what string, known []string) {
	t.Helper()
	_, line, found := strings.Cut(b.Journal, "told: "+what+" ")
	line, _, _ = strings.Cut(line, "\n")
	if names := strings.Fields(line); !found || !slices.Equal(slices.Sorted(slices.Values(names)), slices.Sorted(slices.Values(known))) {
		t.Errorf("the machine's %s are not those of pkg/spec/kernel/%s.txt, but:\n%s", what, what, strings.Join(slices.Sorted(slices.Values(names)), "\n"))
	}
}

// daemonsFirst asserts that daemons got most of a processor that pods wanted as a whole. By their weights it is ten times as much.
func (b *Booted) daemonsFirst(t *testing.T) {
	t.Helper()
	_, line, _ := strings.Cut(b.Journal, "told: shares ")
	line, _, _ = strings.Cut(line, "\n")
	var daemons, pods int
	if _, err := fmt.Sscanf(line, "daemons %d pods %d", &daemons, &pods); err != nil {
		t.Errorf("the machine told no shares of its processor: %q: %v", line, err)
		return
	}
	t.Logf("microseconds of the processor: daemons %d, pods %d", daemons, pods)
	if daemons < 5*pods {
		t.Errorf("daemons got %d µs of the processor beside pods with %d; want at least five times as much", daemons, pods)
	}
}

// authorityAndLeaf are a new authority's certificate, and one that it signed, in PEM.
func authorityAndLeaf(t *testing.T) (authority, leaf []byte) {
	t.Helper()
	key, err := pki.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	ca, err := pki.NewAuthority("e2e", key, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	pair, err := ca.Issue(pki.Profile{Name: "leaf", Usage: pki.Server, Names: []string{"leaf.test"}, Life: time.Hour}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: ca.Certificate.Raw}), pair.Certificate
}
