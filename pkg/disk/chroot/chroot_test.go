package chroot

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/file"
)

// programs are what the tests run in a root; their libraries come with them.
var programs = []string{"sh", "cat", "mkdir", "chmod", "tar", "sleep", "ls", "stat", "head", "readlink", "env", "setsid"}

var library = regexp.MustCompile(`/\S+`)

// newRoot makes a root directory of the host's own programs.
func newRoot(t *testing.T) *Root {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("namespaces need root, and this is user ", os.Geteuid())
	}
	dir := t.TempDir()
	for _, sub := range []string{"usr/bin", "etc", "dev", "proc", "sys", "mnt", "tmp"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("usr/bin", filepath.Join(dir, "bin")); err != nil {
		t.Fatal(err)
	}
	for _, program := range programs {
		path, err := exec.LookPath(program)
		if err != nil {
			t.Fatal(err)
		}
		needs, err := exec.CommandContext(t.Context(), "ldd", path).Output()
		if err != nil {
			t.Fatal(err)
		}
		for _, lib := range library.FindAllString(string(needs), -1) {
			install(t, lib, filepath.Join(dir, lib))
		}
		install(t, path, filepath.Join(dir, "usr/bin", program))
	}
	root, err := New(dir, 1234)
	if err != nil {
		t.Fatal(err)
	}
	return root
}

func install(t *testing.T, from, to string) {
	t.Helper()
	data, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := file.WriteProgram(to, bytes.NewReader(data)); err != nil {
		t.Fatal(err)
	}
}

func TestRun(t *testing.T) {
	root := newRoot(t)
	t.Setenv("HARDTACK_LEAK", "leaked")
	for name, c := range map[string]struct {
		script, stdin string
		exit          int
		stdout        string
	}{
		"status":         {script: "exit 7", exit: 7},
		"missing":        {script: "no-such-program 2>/dev/null", exit: 127},
		"signal":         {script: "kill -TERM $$", exit: 143},
		"two lines":      {script: "echo one\necho \"two\t$((1+1))\"", stdout: "one\ntwo\t2\n"},
		"stdin":          {script: "cat; cat", stdin: "in", stdout: "in"},
		"stops reading":  {script: "head -c 3", stdin: strings.Repeat("x", 1<<20), stdout: "xxx"},
		"not process 1":  {script: "[ $$ != 1 ] && echo other", stdout: "other\n"},
		"own processes":  {script: "ls -d /proc/[0-9]* | head -n 1", stdout: "/proc/1\n"},
		"no host disks":  {script: "ls /dev", stdout: "fd\nfull\nnull\nptmx\npts\nrandom\nshm\nstderr\nstdin\nstdout\ntty\nurandom\nzero\n"},
		"own host name":  {script: "cat /proc/sys/kernel/hostname", stdout: "localhost\n"},
		"no environment": {script: "echo \"$HARDTACK_LEAK$SOURCE_DATE_EPOCH\"", stdout: "1234\n"},
	} {
		t.Run(name, func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			var stdin io.Reader
			if c.stdin != "" {
				stdin = strings.NewReader(c.stdin)
			}
			exit, err := root.Run(t.Context(), c.script, stdin, &stdout, &stderr)
			if err != nil || exit != c.exit || stdout.String() != c.stdout {
				t.Errorf("got %d %v %q (%s), want %d %q", exit, err, stdout.String(), stderr.String(), c.exit, c.stdout)
			}
		})
	}
}

func TestStdinThatFailsIsNotAnEnd(t *testing.T) {
	root := newRoot(t)
	broken := errors.New("wire cut")
	_, err := root.Run(t.Context(), "cat >/tmp/half; : >/tmp/whole",
		io.MultiReader(strings.NewReader("half"), iotest.ErrReader(broken)), nil, nil)
	if !errors.Is(err, broken) {
		t.Errorf("got %v, want the reader's error", err)
	}
	if _, err := os.Stat(filepath.Join(root.Dir(), "tmp/whole")); err == nil {
		t.Error("the command took the broken input for a whole one")
	}
}

// TestStdinThatNeverEnds is what Packer's RPC does: the reader is open until the connection is.
func TestStdinThatNeverEnds(t *testing.T) {
	root := newRoot(t)
	r, w := io.Pipe()
	defer func() { _ = w.Close() }()
	begun := time.Now()
	if exit, err := root.Run(t.Context(), "exit 3", r, nil, nil); exit != 3 || err != nil {
		t.Errorf("got %d, %v", exit, err)
	}
	if took := time.Since(begun); took > 5*time.Second {
		t.Errorf("took %v for a command that reads nothing", took)
	}
}

// TestNothingIsLeft starts processes that try to survive, cancels, and looks for them and their mounts.
func TestNothingIsLeft(t *testing.T) {
	root := newRoot(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		_, err := root.Run(ctx, "trap '' TERM INT; setsid sleep 7531 & sleep 7531", nil, nil, nil)
		ended <- err
	}()
	for end := time.Now().Add(time.Minute); alive(t) < 2; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the command did not start")
		}
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want the cancellation", err)
	}
	if n := alive(t); n != 0 {
		t.Errorf("%d processes survived", n)
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(mounts, []byte(root.Dir())) {
		t.Error("a mount is left")
	}
	if entries, _ := os.ReadDir(filepath.Join(root.Dir(), "dev")); len(entries) != 0 {
		t.Errorf("/dev of the root holds %v", entries)
	}
}

// alive counts the processes of TestNothingIsLeft.
func alive(t *testing.T) int {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, file := range files {
		line, _ := os.ReadFile(file) // gone since the glob
		if string(line) == "sleep\x007531\x00" {
			n++
		}
	}
	return n
}

func TestFiles(t *testing.T) {
	root := newRoot(t)
	outside := filepath.Join(t.TempDir(), "precious")
	if err := os.WriteFile(outside, []byte("kept"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(outside, filepath.Join(root.Dir(), "etc/link")); err != nil {
		t.Fatal(err)
	}
	if err := root.WriteFile(t.Context(), "/etc/link", 0o600, strings.NewReader("inside")); err == nil {
		t.Error("the link's target is not in the root, and yet it was written")
	}
	if data, _ := os.ReadFile(outside); string(data) != "kept" {
		t.Errorf("a link in the root led to a file of the host: %q", data)
	}
	const name = "/opt/it's a dir/tool"
	if err := root.WriteFile(t.Context(), name, 0o751, strings.NewReader("#!/bin/sh\n")); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(filepath.Join(root.Dir(), name))
	if err != nil || info.Mode() != 0o751 {
		t.Errorf("got %v %v, want mode 0751", info, err)
	}
	var got bytes.Buffer
	if err := root.ReadFile(t.Context(), name, &got); err != nil || got.String() != "#!/bin/sh\n" {
		t.Errorf("got %q, %v", got.String(), err)
	}
	if err := root.ReadFile(t.Context(), "/no/such", io.Discard); err == nil || !strings.Contains(err.Error(), "/no/such") {
		t.Errorf("got %v, want an error with the name", err)
	}
}

func TestBind(t *testing.T) {
	root := newRoot(t)
	bound := root.Bind("/mnt/self", root.Dir()).Bind("/mnt/host", t.TempDir())
	var out bytes.Buffer
	exit, err := bound.Run(t.Context(), "ls /mnt; ls /mnt/self/dev /mnt/self/mnt; : >/mnt/host/made", nil, &out, &out)
	if err != nil || exit != 0 || out.String() != "host\nself\n/mnt/self/dev:\n\n/mnt/self/mnt:\n" {
		t.Errorf("got %d %v %q", exit, err, out.String())
	}
	if _, err := root.Bind("/etc", root.Dir()).Run(t.Context(), "true", nil, nil, nil); err == nil ||
		!strings.Contains(err.Error(), "not below /mnt") {
		t.Errorf("got %v, want a refusal to cover /etc", err)
	}
}

// capabilitySets reads the sets of /proc/self/status, as numbers by their names.
func capabilitySets(t *testing.T, status string) map[string]uint64 {
	t.Helper()
	sets := map[string]uint64{}
	for line := range strings.Lines(status) {
		name, value, ok := strings.Cut(line, ":")
		if !ok || !strings.HasPrefix(name, "Cap") {
			continue
		}
		n, err := strconv.ParseUint(strings.TrimSpace(value), 16, 64)
		if err != nil {
			t.Fatal(err)
		}
		sets[name] = n
	}
	return sets
}

// TestAttackCapabilities does from inside what a hostile package would: a device node of the host's disk, a mount of its
// device file system, a look at process 1's root, which is the host's.
func TestAttackCapabilities(t *testing.T) {
	root := newRoot(t)
	for _, program := range []string{"mknod", "mount", "chown"} {
		path, err := exec.LookPath(program)
		if err != nil {
			t.Fatal(err)
		}
		needs, err := exec.CommandContext(t.Context(), "ldd", path).Output()
		if err != nil {
			t.Fatal(err)
		}
		for _, lib := range library.FindAllString(string(needs), -1) {
			install(t, lib, filepath.Join(root.Dir(), lib))
		}
		install(t, path, filepath.Join(root.Dir(), "usr/bin", program))
	}
	for name, script := range map[string]string{
		"device node":         "mknod /tmp/disk b 259 0",
		"device file system":  "mount -t devtmpfs none /tmp",
		"memory file system":  "mount -t tmpfs none /tmp",
		"host's root":         "ls /proc/1/root/",
		"kernel's parameters": "v=$(cat /proc/sys/vm/swappiness); echo $v >/proc/sys/vm/swappiness",
	} {
		if exit, err := root.Run(t.Context(), script, nil, nil, nil); err != nil || exit == 0 {
			t.Errorf("%s: exit status %d, %v", name, exit, err)
		}
	}
	// What installing a package takes is left.
	var out bytes.Buffer
	if exit, err := root.Run(t.Context(), "set -e; : >/tmp/f; chown 33:33 /tmp/f; chmod 4755 /tmp/f; cat /proc/self/status", nil, &out, &out); err != nil || exit != 0 {
		t.Fatalf("%d %v %s", exit, err, out.String())
	}
	const chown, sysModule, sysRawIO, sysPtrace, sysAdmin, sysBoot, sysTime, makeNode = 0, 16, 17, 19, 21, 22, 25, 27
	for name, set := range capabilitySets(t, out.String()) {
		if has := set&(1<<chown) != 0; has != (name == "CapBnd" || name == "CapEff" || name == "CapPrm") {
			t.Errorf("%s %016x: may change owners: %v", name, set, has)
		}
		for _, bit := range []int{sysModule, sysRawIO, sysPtrace, sysAdmin, sysBoot, sysTime, makeNode} {
			if set&(1<<bit) != 0 {
				t.Errorf("%s %016x has capability %d", name, set, bit)
			}
		}
	}
	// The host's program that makes a root mounts, and no more.
	out.Reset()
	if exit, err := RunHost(t.Context(), t.TempDir(), []string{"PATH=" + os.Getenv("PATH")}, &out, &out, "cat", "/proc/self/status"); err != nil || exit != 0 {
		t.Fatalf("%d %v %s", exit, err, out.String())
	}
	set := capabilitySets(t, out.String())["CapEff"]
	for _, bit := range []int{sysAdmin, makeNode, chown} {
		if set&(1<<bit) == 0 {
			t.Errorf("making a root lacks capability %d: %016x", bit, set)
		}
	}
	for _, bit := range []int{sysModule, sysRawIO, sysPtrace, sysBoot, sysTime} {
		if set&(1<<bit) != 0 {
			t.Errorf("making a root has capability %d: %016x", bit, set)
		}
	}
}

func TestNew(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	toHost := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink("/", toHost); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{"/", toHost, file, file + "-none"} {
		if _, err := New(dir, 0); err == nil {
			t.Errorf("%s was taken for a root directory", dir)
		}
	}
}
