package e2e

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/lab/qemu"
)

const (
	driveSerial = "vol0123456789abcdef0"
	// earlyShell reads commands from the second serial line as soon as devices are found. Nothing of a cluster is needed
	// for it.
	earlyShell = `[Unit]
DefaultDependencies=no
After=systemd-udevd.service
[Service]
ExecStart=/bin/bash
StandardInput=tty-force
StandardOutput=inherit
StandardError=inherit
TTYPath=/dev/ttyS1
`
	// findDrive waits until the drive is there, or with "gone" until it is not, and sets $disk to its device.
	findDrive = `find() { for i in $(seq 300); do disk=; for s in /sys/class/nvme/*/serial; do
 [ "$(tr -d ' ' <"$s")" = ` + driveSerial + ` ] && disk=/dev/$(basename "${s%/serial}"/nvme*n1); done
 case "$1$disk" in gone|/dev/nvme*n1) [ -n "$1" ] || [ -b "$disk" ] && return 0;; esac; sleep 0.1; done; return 1; }`
)

// TestDrives moves a volume between running machines of the baked image, as the lab does: plugged in, found by its
// serial number, written to, given back and plugged in again; never at two machines; and whole after a machine was
// killed. At last modules are loaded, and the root file system has an error: nothing is written to it any more.
func TestDrives(t *testing.T) {
	needMachines(t, 3*time.Minute)
	ctx, cancel := context.WithTimeout(interrupted, bound)
	defer cancel()
	volume := filepath.Join(t.TempDir(), "volume.raw")
	if err := os.WriteFile(volume, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(volume, 64<<20); err != nil {
		t.Fatal(err)
	}
	one, two := earlyMachine(ctx, t), earlyMachine(ctx, t)
	attach := func(m *typist) {
		t.Helper()
		if err := m.Attach(ctx, volume, driveSerial); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		m.run(ctx, t, "find")
		t.Logf("found after %s", time.Since(began).Round(10*time.Millisecond))
	}
	attach(one)
	one.run(ctx, t, `echo first | dd of="$disk" bs=512 conv=sync,fsync`)
	if err := two.Attach(ctx, volume, driveSerial); err == nil || !strings.Contains(err.Error(), "lock") {
		t.Errorf("the second machine gets the volume of the first: %v", err)
	}
	began := time.Now()
	if err := one.Detach(ctx, driveSerial); err != nil {
		t.Fatal(err)
	}
	t.Logf("given back after %s", time.Since(began).Round(10*time.Millisecond))
	one.run(ctx, t, "find gone")
	attach(one)
	if got := one.run(ctx, t, `head -c 5 "$disk"; echo`); !strings.Contains(got, "first") {
		t.Errorf("after it was given back the volume has %q", got)
	}
	one.run(ctx, t, `echo second | dd of="$disk" bs=512 seek=1 conv=sync,fsync`)
	if err := syscall.Kill(one.PID(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	<-one.Ended()
	attach(two)
	if got := two.run(ctx, t, `dd if="$disk" bs=512 count=2 2>/dev/null | tr -d '\0'`); !strings.Contains(got, "first") || !strings.Contains(got, "second") {
		t.Errorf("after the machine was killed the volume has %q", got)
	}
	// Modules that are loaded late have the image's settings.
	two.run(ctx, t, "systemctl start --job-mode=ignore-dependencies "+modulesUnit+
		" && cd /proc/sys/net && [ $(cat bridge/bridge-nf-call-iptables netfilter/nf_conntrack_max | xargs echo | tr ' ' ,) = 1,1048576 ] && cd /")
	// From then on Linux 6.12 reads nothing either: no other program starts.
	two.run(ctx, t, ": >/var/before && echo here >/sys/fs/ext4/nvme0n1p2/trigger_fs_error && ! : >/var/after")
	if !two.Console().Contains("Remounting filesystem read-only") {
		t.Error("an error in the root file system did not make it read-only")
	}
}

// typist is a machine with a shell on its second serial line.
type typist struct {
	*qemu.Machine
	typed io.ReadWriteCloser
}

// earlyMachine powers a machine of the baked image on.
func earlyMachine(ctx context.Context, t *testing.T) *typist {
	t.Helper()
	c := bakedMachine(t)
	c.Name, c.Slots = "hardtack-e2e-drives", 2
	m := shellMachine(ctx, t, c)
	m.run(ctx, t, findDrive)
	return m
}

// shellMachine powers a machine on, and gives it a shell.
func shellMachine(ctx context.Context, t *testing.T, c qemu.Config) *typist {
	t.Helper()
	c.Credentials = map[string][]byte{
		"systemd.extra-unit.hardtack-shell.service": []byte(earlyShell),
		"systemd.unit-dropin.sysinit.target":        []byte("[Unit]\nWants=hardtack-shell.service\n"),
	}
	m, err := qemu.Start(ctx, c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = m.Stop() // one of them was killed
		if t.Failed() {
			t.Logf("console:\n%s\nsecond serial line:\n%s", m.Console().Tail(consoleTail), m.Channel().Tail(consoleTail))
		}
	})
	if err := m.Await(ctx, quiet, func() bool { return m.Channel().Contains("# ") }); err != nil {
		t.Fatal(err)
	}
	typed, err := m.Shell()
	if err != nil {
		t.Fatal(err)
	}
	shell := &typist{m, typed}
	shell.run(ctx, t, "stty -echo")
	return shell
}

var shellDone = regexp.MustCompile(`@done (\d+)`)

// run runs a command, which must succeed, and returns what the machine has printed since.
func (m *typist) run(ctx context.Context, t *testing.T, command string) string {
	t.Helper()
	before := len(m.Channel().Bytes())
	if _, err := fmt.Fprintf(m.typed, "%s\necho @done $?\n", command); err != nil {
		t.Fatal(err)
	}
	var found [][]byte
	err := m.Await(ctx, quiet, func() bool {
		found = shellDone.FindSubmatch(m.Channel().Bytes()[before:])
		return found != nil
	})
	out := string(m.Channel().Bytes()[before:])
	if err != nil || string(found[1]) != "0" {
		t.Fatalf("%s: %v: %s", command, err, out)
	}
	return out
}
