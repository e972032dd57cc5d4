package e2e

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/run"

	"github.com/hardtack/packer-plugin-hardtack/pkg/image/bake/baketest"
)

// These tests run one after the other: each is a bake, and they look for what a bake leaves on this computer.

// endWithin is the time after which nothing that a bake started may still be running.
const endWithin = 30 * time.Second

// TestKilledBake ends a bake while a command runs inside the image.
func TestKilledBake(t *testing.T) {
	for _, signal := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGKILL} {
		t.Run(signal.String(), func(t *testing.T) {
			b := newBakery(t)
			// The number of seconds identifies this sleep: no other process on this computer has the same.
			mark := "9" + strconv.FormatInt(time.Now().UnixNano()%1e9, 10)
			var out run.Log
			cmd := b.packerBuild("inside=sleep " + mark)
			cmd.Stdout, cmd.Stderr = &out, &out
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			ended := make(chan error, 1)
			go func() { ended <- cmd.Wait() }()
			awaitText(t, cmd, ended, &out, "inside the image")
			if traces := b.traces(t, "sleep "+mark); len(traces) == 0 {
				t.Fatal("no trace of a bake that runs: the test looks at the wrong place")
			}
			// To the whole group, as a terminal and a service manager do.
			if err := syscall.Kill(-cmd.Process.Pid, signal); err != nil {
				t.Fatal(err)
			}
			if err := <-ended; err == nil {
				t.Errorf("packer build ended well:\n%s", out.String())
			}
			if left := eventually(endWithin, func() []string { return b.traces(t, "sleep "+mark) }); len(left) > 0 {
				t.Errorf("left behind:\n%s", strings.Join(left, "\n"))
			}
			b.leftFiles(t, signal)
			if t.Failed() {
				t.Logf("packer build:\n%s", out.String())
			}
		})
	}
}

// leftFiles asserts which files remain after a bake was ended. After SIGKILL nothing cleans up, but even then there
// must be no file that could be mistaken for an image.
func (b *bakery) leftFiles(t *testing.T, signal syscall.Signal) {
	t.Helper()
	files := b.files(t)
	if signal != syscall.SIGKILL {
		if left := without(files, b.output()); len(left) > 0 {
			t.Errorf("%d files are left, the first is %s", len(left), left[0])
		}
		return
	}
	for _, file := range files {
		if ext := filepath.Ext(file); filepath.Dir(file) == b.output() && (ext == ".qcow2" || ext == ".raw") {
			t.Errorf("%s is there", file)
		}
	}
}

// without leaves out the output directory itself.
func without(files []string, output string) []string {
	return slices.DeleteFunc(files, func(file string) bool { return file == output })
}

// awaitText waits until the command has printed text, or has ended.
func awaitText(t *testing.T, cmd *exec.Cmd, ended <-chan error, out *run.Log, text string) {
	t.Helper()
	waiting := func() []string {
		select {
		case err := <-ended:
			t.Fatalf("packer build has ended before it printed %q: %v\n%s", text, err, out.String())
		default:
		}
		if strings.Contains(out.String(), text) {
			return nil
		}
		return []string{"still waiting"}
	}
	if len(eventually(bound, waiting)) > 0 {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		t.Fatalf("packer build did not print %q within %s:\n%s", text, bound, out.String())
	}
}

// TestWrongDigest bakes from a mirror whose file differs from the lock.
func TestWrongDigest(t *testing.T) {
	b := newBakery(t)
	kubelet := baketest.Host + "/kubernetes/kubelet"
	published, err := os.ReadFile(filepath.Join(b.mirror, kubelet))
	if err != nil {
		t.Fatal(err)
	}
	other := bytes.Repeat([]byte("?"), len(published)) // another size would be seen before the digest
	if err := os.WriteFile(filepath.Join(b.mirror, kubelet), other, 0o644); err != nil {
		t.Fatal(err)
	}
	want := ""
	for _, c := range b.lock.Components {
		for _, d := range c.Release["amd64"] {
			if d.As == "kubelet" {
				want = d.Digest
			}
		}
	}
	out, err := b.packerBuild().CombinedOutput()
	if err == nil {
		t.Errorf("packer build ended well:\n%s", out)
	}
	for _, text := range []string{want, fmt.Sprintf("sha256:%x", sha256.Sum256(other)), kubelet} {
		if !strings.Contains(string(out), text) {
			t.Errorf("packer build does not name %q:\n%s", text, out)
		}
	}
	b.nothingLeft(t, "")
}

// TestFullDisk bakes to a file system that is too small, and to one that becomes full during the bake. The file system
// is in a mount namespace that ends with the bake.
func TestFullDisk(t *testing.T) {
	cases := []struct {
		name, size, outside string
		says                string
	}{
		{"too small", "64m", "true", "space"},
		{"fills up", "1100m", "df -h . >&2; dd if=/dev/zero of=fill bs=1M 2>/dev/null || true", "space"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			b := newBakery(t)
			if err := os.MkdirAll(b.work(), 0o755); err != nil {
				t.Fatal(err)
			}
			build := b.packerBuild("outside=cd " + b.work() + " && " + c.outside)
			script := `mount -t tmpfs -o size=` + c.size + ` tmpfs "$0" && { "$@"; code=$?; cd "$0"; echo "left: $(find * .??* ! -name fill 2>/dev/null | tr '\n' ' ')"; exit $code; }`
			cmd := exec.CommandContext(interrupted, "unshare", append([]string{"--mount", "sh", "-c", script, b.work()}, build.Args...)...)
			cmd.Env, cmd.SysProcAttr = build.Env, build.SysProcAttr
			cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGINT) }
			cmd.WaitDelay = endWithin
			out, err := cmd.CombinedOutput()
			if err == nil {
				t.Errorf("packer build ended well:\n%s", out)
			}
			if !strings.Contains(string(out), c.says) {
				t.Errorf("packer build does not say %q:\n%s", c.says, out)
			}
			_, left, _ := strings.Cut(string(out), "left: ")
			for _, file := range without(strings.Fields(left), "out") {
				t.Errorf("%s is left:\n%s", file, out)
			}
			if traces := eventually(endWithin, func() []string { return b.traces(t, "") }); len(traces) > 0 {
				t.Errorf("left behind:\n%s", strings.Join(traces, "\n"))
			}
		})
	}
}

// nothingLeft asserts that neither files nor processes nor mounts are left.
func (b *bakery) nothingLeft(t *testing.T, mark string) {
	t.Helper()
	if left := without(b.files(t), b.output()); len(left) > 0 {
		t.Errorf("%d files are left, the first is %s", len(left), left[0])
	}
	if left := eventually(endWithin, func() []string { return b.traces(t, mark) }); len(left) > 0 {
		t.Errorf("left behind:\n%s", strings.Join(left, "\n"))
	}
}
