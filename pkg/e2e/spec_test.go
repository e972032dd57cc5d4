package e2e

import (
	"slices"
	"strings"
	"testing"

	"github.com/hardtack/packer-plugin-hardtack/pkg/spec"
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
  - name: told-never
    enabled: false
    manifest: |
      ExecStart=/bin/echo 'told: never'
`

// TestUnitsOfUserData boots a machine with units in its user data. systemd loads its units before the user data is
// read; those units must run all the same, in the order that they ask for.
func TestUnitsOfUserData(t *testing.T) {
	t.Parallel()
	needMachines(t)
	b := boot(t, Asked{
		UserData: string(userDataOfAll(t, []byte(hooked), nil)),
		Until:    []string{"told-before.service", "told-after.service", "told-words.service", "told-options.service"},
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
