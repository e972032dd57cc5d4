package e2e

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/lab"
	"github.com/hardtack/packer-plugin-hardtack/pkg/lab/qemu"
)

// pipeMode as the first argument makes the test program the one that QEMU runs for each connection to a forwarded
// address: it copies between standard input and output and a Unix socket.
const pipeMode = "pipe"

func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == pipeMode {
		if err := pipe(os.Args[2]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(interruptible(m))
}

// interrupted is cancelled by the first Ctrl-C, and when CI's time is over. Machines and bakes then end in order, and their tests fail.
var interrupted = context.Background()

func interruptible(m *testing.M) int {
	var stop context.CancelFunc
	interrupted, stop = signal.NotifyContext(interrupted, os.Interrupt, syscall.SIGTERM)
	defer stop()
	if end, err := strconv.ParseInt(os.Getenv(untilVariable), 10, 64); err == nil {
		var cancel context.CancelFunc
		interrupted, cancel = context.WithDeadline(interrupted, time.Unix(end, 0).Add(grace))
		defer cancel()
	}
	code := m.Run()
	if err := figures.write(filepath.Join(root, "build", "e2e.json")); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	return code
}

func pipe(socket string) error {
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	go func() {
		_, _ = io.Copy(conn, os.Stdin)
		_ = conn.CloseWrite()
	}()
	_, err = io.Copy(os.Stdout, conn)
	return err
}

// root is the repository, as seen from this package, where tests run.
const root = "../.."

// needMachines skips tests that boot the baked image unless they are requested, since they need a bake and minutes, and where CI
// has no time left for what they take.
func needMachines(t *testing.T, takes ...time.Duration) {
	t.Helper()
	if os.Getenv("HARDTACK_E2E") != "1" {
		t.Skip("boots the baked image: run make e2e, or set HARDTACK_E2E=1")
	}
	fits(t, 0, takes...)
}

// needTime skips tests that would take longer than CI's hour on a computer without KVM.
func needTime(t *testing.T) {
	t.Helper()
	needMachines(t)
	host, err := qemu.Detect()
	if err != nil {
		t.Fatal(err)
	}
	if !host.KVM && os.Getenv("HARDTACK_E2E_LONG") != "1" {
		t.Skip("takes long, and this computer has no KVM that works: run make e2e-long, or set HARDTACK_E2E_LONG=1 too")
	}
}

// needNamespaces skips tests whose machines are network and mount namespaces, where only root may make them.
func needNamespaces(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("makes network and mount namespaces: run as root")
	}
}

// image is the baked disk.
func image(t *testing.T) string {
	t.Helper()
	path := os.Getenv("HARDTACK_IMAGE")
	if path == "" {
		path = filepath.Join(root, "build", "hardtack.qcow2")
	}
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("looking for the baked image: %v (make it with: make image)", err)
	}
	return path
}

// bakedMachine starts from the baked disk, with the processor and by the firmware that the disk needs.
func bakedMachine(t *testing.T) qemu.Config {
	t.Helper()
	b, err := lab.Boot{Path: image(t), Format: "qcow2"}.Complete()
	if err != nil {
		t.Fatal(err)
	}
	return qemu.Config{Firmware: b.Firmware, Arch: b.Arch, Disks: []qemu.Disk{{Path: b.Path, Format: b.Format}}}
}

// need returns the path of a program, or fails with the Debian package to install.
func need(t *testing.T, program, pkg string) string {
	t.Helper()
	path, err := exec.LookPath(program)
	if err != nil {
		t.Fatalf("looking for %s: %v (install Debian's package %s)", program, err, pkg)
	}
	return path
}
