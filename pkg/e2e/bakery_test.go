package e2e

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/images"
	"github.com/hardtack/packer-plugin-hardtack/pkg/base/run"
	"github.com/hardtack/packer-plugin-hardtack/pkg/image/bake"
	"github.com/hardtack/packer-plugin-hardtack/pkg/image/bake/baketest"
	"github.com/hardtack/packer-plugin-hardtack/pkg/image/lock"
)

// bakery is a directory in which a test bakes with the real Packer and plugin.
type bakery struct {
	dir    string
	packer string
	// lock is the content of lockFile; mirror is the directory with the files that it pins.
	lock             *lock.Lock
	lockFile, mirror string
}

// newBakery prepares a bake of the default lock. Each component is replaced by a one-line script, since the tested
// faults do not depend on the content of components.
func newBakery(t *testing.T) *bakery {
	t.Helper()
	packer := needPacker(t)
	full, err := bake.LoadLock(images.FS, bake.DefaultLock)
	if err != nil {
		t.Fatal(err)
	}
	b := &bakery{dir: t.TempDir(), packer: packer}
	b.lockFile, b.mirror = baketest.SmallRelease(t, full)
	if b.lock, err = bake.LoadLock(images.FS, b.lockFile); err != nil {
		t.Fatal(err)
	}
	return b
}

// needPacker is the real Packer, with which a test bakes.
func needPacker(t *testing.T) string {
	t.Helper()
	needMachines(t)
	if os.Geteuid() != 0 {
		t.Fatal("bakes: a disk needs root (sudo --preserve-env make e2e)")
	}
	if packer := os.Getenv("HARDTACK_PACKER"); packer != "" {
		return packer
	}
	packer, err := exec.LookPath("packer")
	if err != nil {
		t.Fatalf("looking for packer: %v (run make e2e, which builds it, or set HARDTACK_PACKER)", err)
	}
	return packer
}

// work is the parent of output. The bake keeps its working files beside output.
func (b *bakery) work() string   { return filepath.Join(b.dir, "work") }
func (b *bakery) output() string { return filepath.Join(b.work(), "out") }

// packerBuild is "packer build" in its own process group, with variables of the template as name=value.
func (b *bakery) packerBuild(variables ...string) *exec.Cmd {
	args := []string{"build", "-color=false"}
	for _, v := range append([]string{
		"lock=" + b.lockFile, "mirror=" + b.mirror,
		"cache=" + filepath.Join(b.dir, "cache"), "output=" + b.output(),
	}, variables...) {
		args = append(args, "-var", v)
	}
	cmd := exec.CommandContext(interrupted, b.packer, append(args, "testdata/bake.pkr.hcl")...)
	plugins := os.Getenv("PACKER_PLUGIN_PATH")
	if plugins == "" {
		plugins = filepath.Join(root, "build", "plugins")
	}
	if abs, err := filepath.Abs(plugins); err == nil {
		plugins = abs
	}
	cmd.Env = append(os.Environ(), "PACKER_PLUGIN_PATH="+plugins, "PACKER_CONFIG_DIR="+filepath.Join(b.dir, "packer"),
		"PACKER_CACHE_DIR="+filepath.Join(b.dir, "packer"), "CHECKPOINT_DISABLE=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGINT) }
	cmd.WaitDelay = endWithin
	return cmd
}

// background starts a process that ends with the test, or before it, and returns what it writes.
func background(t *testing.T, cmd *exec.Cmd) *run.Log {
	t.Helper()
	log := &run.Log{}
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return log
}

// traces lists what a running bake has on this computer: processes, mounts, and loop devices that name its directory
// or, for processes inside the image, its mark.
func (b *bakery) traces(t *testing.T, mark string) []string {
	t.Helper()
	var found []string
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(mounts)) {
		if strings.Contains(line, b.work()) {
			found = append(found, "mount "+strings.TrimSpace(line))
		}
	}
	loops, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range loops {
		if text, err := os.ReadFile(file); err == nil && strings.Contains(string(text), b.dir) {
			found = append(found, "loop device "+file)
		}
	}
	commands, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range commands {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // it ended meanwhile
		}
		line := strings.ReplaceAll(string(text), "\x00", " ")
		if strings.Contains(line, b.dir) || mark != "" && strings.Contains(line, mark) {
			found = append(found, fmt.Sprintf("process %s: %.200s", filepath.Base(filepath.Dir(file)), line))
		}
	}
	return found
}

// files lists the directory that the bake works in and writes its image to.
func (b *bakery) files(t *testing.T) []string {
	t.Helper()
	var found []string
	entries, err := filepath.Glob(filepath.Join(b.work(), "*"))
	hidden, err2 := filepath.Glob(filepath.Join(b.work(), ".*"))
	if err != nil || err2 != nil {
		t.Fatal(err, err2)
	}
	for _, path := range append(entries, hidden...) {
		if err := filepath.WalkDir(path, func(path string, _ fs.DirEntry, err error) error {
			found = append(found, path)
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	return found
}

// eventually polls until the answer is empty. It returns the last answer after the time limit.
func eventually(within time.Duration, ask func() []string) []string {
	for end := time.Now().Add(within); ; time.Sleep(100 * time.Millisecond) {
		answer := ask()
		if len(answer) == 0 || time.Now().After(end) {
			return answer
		}
	}
}
