// Package run starts child processes.
//
// Its rule: a failed command is an error that says which command, how it ended, and the last lines
// that it printed, so that nobody has to run it again to learn why; and a cancelled context ends the
// whole process group, so that nothing is left running.
package run

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// keep is how many bytes of a command's output an error carries; the end is where commands say why.
const keep = 4 << 10

// grace is how long a cancelled process group has between SIGTERM and SIGKILL.
const grace = 5 * time.Second

// Command is one child process to be. The zero values of Dir, Env, Stdin, Stdout and Stderr mean what
// they mean for exec.Cmd, except that output also goes into the error.
type Command struct {
	Name           string
	Args           []string
	Dir            string
	Env            []string
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	// Started, when not nil, is told the process's id once it runs.
	Started func(pid int)
}

// Error is a command that did not succeed.
type Error struct {
	Command string // as a shell would take it, roughly
	Output  string // the last lines it printed on stderr, or on stdout where stderr is empty
	Err     error  // what exec.Cmd returned
}

func (e *Error) Error() string {
	if e.Output == "" {
		return fmt.Sprintf("%s: %v", e.Command, e.Err)
	}
	return fmt.Sprintf("%s: %v\n%s", e.Command, e.Err, e.Output)
}

func (e *Error) Unwrap() error { return e.Err }

// Run starts the command and waits for it. A missing program is an error with the program's name;
// everything else that goes wrong is an *Error.
func Run(ctx context.Context, c Command) error {
	cmd := exec.CommandContext(ctx, c.Name, c.Args...)
	cmd.Dir, cmd.Env, cmd.Stdin = c.Dir, c.Env, c.Stdin
	// The parent-death signal is tied to the thread that starts the child: keep that thread until the
	// child has ended (golang/go#27505).
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	// A group of its own: Ctrl-C in a terminal then reaches us only, and we end the children in order.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = grace
	var out, errs tail
	cmd.Stdout, cmd.Stderr = tee(c.Stdout, &out), tee(c.Stderr, &errs)
	err := cmd.Start()
	if err == nil {
		if c.Started != nil {
			c.Started(cmd.Process.Pid)
		}
		err = cmd.Wait()
	}
	if ctx.Err() != nil && cmd.Process != nil {
		// What outlived the grace time; an empty group answers ESRCH, which is what we want.
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		err = errors.Join(ctx.Err(), err)
	}
	if err == nil {
		return nil
	}
	text := strings.TrimSpace(errs.String())
	if text == "" {
		text = strings.TrimSpace(out.String())
	}
	return &Error{Command: strings.Join(append([]string{c.Name}, c.Args...), " "), Output: text, Err: err}
}

// Output runs the command and returns what it printed on stdout.
func Output(ctx context.Context, name string, args ...string) ([]byte, error) {
	var out bytes.Buffer
	err := Run(ctx, Command{Name: name, Args: args, Stdout: &out})
	return out.Bytes(), err
}

func tee(w io.Writer, t *tail) io.Writer {
	if w == nil {
		return t
	}
	return io.MultiWriter(w, t)
}

// tail keeps the last bytes that were written to it.
type tail struct{ buf []byte }

func (t *tail) Write(p []byte) (int, error) {
	t.buf = append(t.buf, p...)
	if len(t.buf) > keep {
		t.buf = append(t.buf[:0], t.buf[len(t.buf)-keep:]...)
	}
	return len(p), nil
}

func (t *tail) String() string { return string(t.buf) }
