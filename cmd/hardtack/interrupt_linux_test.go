package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hardtack/packer-plugin-hardtack/pkg/spec"
)

// ok ends the test at an error.
func ok(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// pipe makes a named pipe.
func pipe(t *testing.T) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "pipe")
	ok(t, unix.Mkfifo(name, 0o600))
	return name
}

// awaitReader opens a named pipe for writing once somebody reads it.
func awaitReader(t *testing.T, name string) *os.File {
	t.Helper()
	for range 400 {
		f, err := os.OpenFile(name, os.O_WRONLY|syscall.O_NONBLOCK, 0)
		if err == nil {
			return f
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Fatalf("nobody reads %s", name)
	return nil
}

// TestInterruptedRead: Ctrl-C ends a command that reads what never comes.
func TestInterruptedRead(t *testing.T) {
	t.Parallel()
	document := filepath.Join(t.TempDir(), "cluster.yaml")
	ok(t, os.WriteFile(document, spec.Minimal("demo"), 0o600))
	for _, tt := range []struct {
		name    string
		words   string // PIPE is a named pipe, DOCUMENT a cluster's
		signals int
		end     string
	}{
		{"the document", "complete -f PIPE", 1, "exit status 130"},
		{"the lab's document", "lab up --empty -f PIPE", 1, "exit status 130"},
		{"what Terraform has made", "stack refresh --terraform PIPE -f DOCUMENT", 1, "exit status 130"},
		{"a lock to write", "lock update --lock PIPE", 1, "exit status 130"},
		{"what is read without a look at the signal", "lock list --lock PIPE", 2, "signal: interrupt"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			name := pipe(t)
			var out bytes.Buffer
			cmd := exec.CommandContext(t.Context(), "hardtack", strings.Fields(strings.NewReplacer("PIPE", name, "DOCUMENT", document).Replace(tt.words))...)
			cmd.Env = append(os.Environ(), "AWS_REGION=us-west-2", "AWS_ACCESS_KEY_ID=AKIDEXAMPLE", "AWS_SECRET_ACCESS_KEY=secret")
			cmd.Stdout, cmd.Stderr = &out, &out
			ok(t, cmd.Start())
			end := make(chan error, 1)
			go func() { end <- cmd.Wait() }()
			defer awaitReader(t, name).Close()
			for range tt.signals {
				ok(t, cmd.Process.Signal(os.Interrupt))
				time.Sleep(200 * time.Millisecond) // the first takes effect
			}
			var err error
			select {
			case err = <-end:
			case <-time.After(20 * time.Second):
				_ = cmd.Process.Kill()
				err = <-end
			}
			if err == nil || err.Error() != tt.end {
				t.Errorf("%v, want %s\n%s", err, tt.end, out.String())
			}
		})
	}
}

// terminal starts the program at a terminal of its own, where what is written to keys is typed.
func terminal(t *testing.T, words ...string) (keys *os.File, cmd *exec.Cmd) {
	t.Helper()
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	ok(t, err)
	keys = os.NewFile(uintptr(fd), "keys")
	ok(t, unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0))
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	ok(t, err)
	tty, err := os.OpenFile(fmt.Sprint("/dev/pts/", n), os.O_RDWR|syscall.O_NOCTTY, 0)
	ok(t, err)
	t.Cleanup(func() { _, _ = tty.Close(), keys.Close() })
	cmd = exec.CommandContext(t.Context(), "hardtack", words...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = tty, tty, tty
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	ok(t, cmd.Start())
	return keys, cmd
}

// until reads from a terminal until it shows a text.
func until(t *testing.T, keys *os.File, text string) {
	t.Helper()
	ok(t, keys.SetReadDeadline(time.Now().Add(20*time.Second)))
	var shown []byte
	for buf := make([]byte, 1024); !bytes.Contains(shown, []byte(text)); {
		n, err := keys.Read(buf)
		if err != nil {
			t.Fatalf("%q never comes: %v\n%s", text, err, shown)
		}
		shown = append(shown, buf[:n]...)
	}
}

// TestInterruptedPassword: Ctrl-C at the question for a password ends the command, whatever is typed then; the terminal shows
// again what is typed, and nothing is stored.
func TestInterruptedPassword(t *testing.T) {
	t.Parallel()
	store := t.TempDir()
	ok(t, os.Mkdir(filepath.Join(store, "public"), 0o755))
	keys, cmd := terminal(t, "registry", "login", "--cluster", "demo", "--store", "dir:"+store, "--username", "robot", "registry.example.org")
	until(t, keys, "password of robot")
	for _, typed := range []string{"\x03", "word\n"} {
		time.Sleep(200 * time.Millisecond) // as people type
		_, err := keys.WriteString(typed)
		ok(t, err)
	}
	until(t, keys, "hardtack: interrupted")
	if err := cmd.Wait(); err == nil || err.Error() != "exit status 130" {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(store, "minions")); err == nil {
		t.Error("the store has credentials")
	}
	state, err := unix.IoctlGetTermios(int(keys.Fd()), unix.TCGETS)
	ok(t, err)
	if state.Lflag&unix.ECHO == 0 {
		t.Error("the terminal stays dark")
	}
}
