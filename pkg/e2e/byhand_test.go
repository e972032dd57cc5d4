package e2e

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/node/reason"
)

// readmeBlock is the one code block of a document that matches.
func readmeBlock(t *testing.T, file, what string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, file))
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for i, block := range strings.Split(string(text), "\n```") {
		if _, body, ok := strings.Cut(block, "\n"); i%2 == 1 && ok && strings.Contains(body, what) {
			found = append(found, body)
		}
	}
	if len(found) != 1 {
		t.Fatalf("%s has %d blocks with %q", file, len(found), what)
	}
	return found[0]
}

// kernelTime is a line's time in seconds since the machine's kernel began.
var kernelTime = regexp.MustCompile(`^\[ *([0-9]+)\.[0-9]+\] `)

// listen is how long the console is read after the machine has printed what it waits for. Four units try again after
// 2, 4, 8 and 16 seconds.
const listen = 40 * time.Second

// TestByHand starts a machine by the commands of images/README.md, with the user data of README.md. Outside a cloud, a
// role file does not say where the cluster's store is: the machine prints once on its console what it waits for and
// which line to write.
func TestByHand(t *testing.T) {
	t.Parallel()
	needMachines(t, 3*time.Minute)
	dir := t.TempDir()
	disk, err := filepath.Abs(image(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{
		os.WriteFile(filepath.Join(dir, "user-data"), []byte(readmeBlock(t, "README.md", "kubernetes-minions\n")), 0o600),
		os.Mkdir(filepath.Join(dir, "build"), 0o755), os.Symlink(disk, filepath.Join(dir, "build", "hardtack.qcow2")),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	slots <- struct{}{}
	defer func() { <-slots }()
	ctx, cancel := context.WithTimeout(interrupted, bound)
	defer cancel()
	cmd := exec.CommandContext(ctx, "sh", "-c", "exec "+strings.TrimSpace(readmeBlock(t, "images/README.md", "qemu-system-x86_64")))
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "TMPDIR="+dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	var said []reason.Failure
	first, now := 0, 0
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		line := lines.Text()
		if m := kernelTime.FindStringSubmatch(line); m != nil {
			now, _ = strconv.Atoi(m[1]) // only digits match
		}
		if f, ok := reason.Parse(line); ok {
			said = append(said, f)
			if first == 0 {
				first = now
				defer time.AfterFunc(listen, func() { _ = cmd.Process.Kill() }).Stop()
			}
		}
	}
	t.Logf("%d s after its kernel began: %+v", first, said)
	if len(said) != 1 {
		t.Fatalf("%d lines, want one that says what the machine waits for (%v)", len(said), ctx.Err())
	}
	f := said[0]
	for _, want := range []string{"write the line STORE=dir:/PATH", "STORE=ssm:/hardtack/cncfdemo", "into /etc/sysconfig/kubernetes-minions in the machine's user data"} {
		if !strings.Contains(f.Next, want) {
			t.Errorf("next is %q, want %q in it", f.Next, want)
		}
	}
	if f.Reason != reason.Config || !strings.Contains(f.Cause, "the store of the cluster's secrets is not given") {
		t.Errorf("%+v", f)
	}
}
