package e2e

import (
	"strings"
	"testing"
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
		Until:    []string{"told-before.service", "told-after.service", "told-words.service"},
	})
	b.noCycle(t)
	for _, want := range []string{
		"told: before, containerd is inactive",
		"told: after, containerd is active",
		"--enable-admission-plugins=NodeRestriction,AlwaysPullImages",
		"told: <--root-dir=" + awkward + ">",
		"told: <--v=1>",
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
}
