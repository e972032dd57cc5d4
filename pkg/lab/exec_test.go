package lab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"
)

// loginShell is a real shell on a real terminal, as a machine has it on its second serial line.
func loginShell(t *testing.T, program string, args ...string) *os.File {
	t.Helper()
	// Not blocking, so that Close ends a read.
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	assert.NilError(t, err)
	line := os.NewFile(uintptr(fd), "terminal")
	assert.NilError(t, unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0))
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	assert.NilError(t, err)
	terminal, err := os.OpenFile(fmt.Sprint("/dev/pts/", n), os.O_RDWR|syscall.O_NOCTTY, 0)
	assert.NilError(t, err)
	cmd := exec.Command(program, args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = terminal, terminal, terminal
	cmd.Env = append(os.Environ(), "TERM=linux")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	assert.NilError(t, cmd.Start())
	assert.NilError(t, terminal.Close())
	t.Cleanup(func() {
		_ = line.Close()
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return line
}

func TestExec(t *testing.T) {
	t.Parallel()
	// "Keep open": several commands share one shell, and Exec's callers close the line.
	line := loginShell(t, "bash", "--noprofile", "--norc", "-i")
	for _, tt := range []struct {
		name, script, want string
		status             int
	}{
		{"words", "echo hello", "hello\n", 0},
		{"a status", "exit 7", "", 7},
		{"both streams", "echo one; echo two >&2", "one\ntwo\n", 0},
		{"no end of the line", "printf half", "half", 0},
		{"quotes, and what shells interpret", `printf '%s\n' 'a "b" $HOME' "it's" '!!' '\n'`, "a \"b\" $HOME\nit's\n!!\n\\n\n", 0},
		{"lines as they are", `printf 'a\r\nb\tc\0d\n'`, "a\r\nb\tc\x00d\n", 0},
		{"what looks like a marker", "echo @@42end; echo @@42begin", "@@42end\n@@42begin\n", 0},
		{"no input", "cat; echo over", "over\n", 0},
		{"not a terminal", "test -t 0 || test -t 1 || test -t 2 || echo none", "none\n", 0},
		{"much", "seq 1 20000 | tail -n 3", "19998\n19999\n20000\n", 0},
		{"a long script", "true " + strings.Repeat("word ", 2000) + "; echo done", "done\n", 0},
		{"no such program", "exec hardtack-none 2>/dev/null", "", 127},
	} {
		var out bytes.Buffer
		status, err := execOn(t.Context(), line, tt.script, &out, time.Minute)
		if err != nil || status != tt.status || out.String() != tt.want {
			t.Errorf("%s: status %d, %v, want %d; prints %.200q, want %q", tt.name, status, err, tt.status, out.String(), tt.want)
		}
	}
}

// What is typed already is not part of the command.
func TestExecHalfTyped(t *testing.T) {
	t.Parallel()
	line := loginShell(t, "bash", "--noprofile", "--norc", "-i")
	_, err := io.WriteString(line, "rm -rf /tmp/hardtack-never ")
	assert.NilError(t, err)
	var out bytes.Buffer
	status, err := execOn(t.Context(), line, "echo well", &out, time.Minute)
	assert.NilError(t, err)
	assert.Equal(t, status, 0)
	assert.Equal(t, out.String(), "well\n")
}

// The end of the context interrupts the command in the machine, and not only the one that waits for it.
func TestExecInterrupted(t *testing.T) {
	t.Parallel()
	line := loginShell(t, "bash", "--noprofile", "--norc", "-i")
	file := t.TempDir() + "/interrupted"
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	started := &notice{text: "started", seen: cancel}
	_, err := execOn(ctx, again(t, line), "trap 'touch "+file+"; exit' INT; echo started; sleep 600 & wait", started, time.Minute)
	assert.ErrorIs(t, err, context.Canceled)
	for limit := time.Now().Add(time.Minute); ; {
		if _, err := os.Stat(file); err == nil {
			break
		}
		if time.Now().After(limit) {
			t.Fatal("the command goes on")
		}
		time.Sleep(10 * time.Millisecond)
	}
	var out bytes.Buffer
	status, err := execOn(t.Context(), line, "echo again", &out, time.Minute)
	assert.NilError(t, err)
	assert.Equal(t, status, 0)
	assert.Equal(t, out.String(), "again\n")
}

func TestExecSilent(t *testing.T) {
	t.Parallel()
	_, err := execOn(t.Context(), loginShell(t, "sleep", "600"), "true", io.Discard, 100*time.Millisecond)
	assert.ErrorIs(t, err, ErrShellSilent)
}

// The machine ends while its command runs.
func TestExecEnds(t *testing.T) {
	t.Parallel()
	line := loginShell(t, "bash", "--noprofile", "--norc", "-i")
	_, err := execOn(t.Context(), line, "kill -9 $(ps -o ppid= -p $$)", io.Discard, time.Minute)
	if err == nil || errors.Is(err, context.Canceled) {
		t.Errorf("a shell that has ended: %v", err)
	}
}

// again is the line for one user, who closes it, while another has it later.
func again(t *testing.T, line *os.File) *os.File {
	t.Helper()
	conn, err := line.SyscallConn()
	assert.NilError(t, err)
	fd := -1
	assert.NilError(t, conn.Control(func(of uintptr) { fd, err = unix.FcntlInt(of, unix.F_DUPFD_CLOEXEC, 0) }))
	assert.NilError(t, err)
	return os.NewFile(uintptr(fd), "terminal")
}

// notice tells of a text.
type notice struct {
	text string
	seen func()
	got  []byte
}

func (n *notice) Write(p []byte) (int, error) {
	if n.got = append(n.got, p...); bytes.Contains(n.got, []byte(n.text)) {
		n.seen()
	}
	return len(p), nil
}
