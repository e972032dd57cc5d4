// Package run runs child processes.
//
// Its rule: the error of a failed command has the command line, the exit status and the last lines of its output, so
// that the failure need not be reproduced; and a cancelled context ends the whole process group, so that no process is
// left.
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
	"time"
)

// keep is the number of bytes of output that an error carries: the end, where commands say why they failed.
const keep = 4 << 10

// grace is the time between SIGTERM and SIGKILL for a cancelled process group.
const grace = 5 * time.Second

// Command describes a child process. The zero values of Dir, Env, Stdin, Stdout and Stderr mean the same as for
// exec.Cmd, except that output is also kept for the error.
type Command struct {
	Name           string
	Args           []string
	Dir            string
	Env            []string
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	// Started, if not nil, is called with the process id once the process runs.
	Started func(pid int)
}

// Error is the failure of a command.
type Error struct {
	Command string // the command line, approximately as for a shell
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

// Run starts the command and waits for it. A missing program is an error that names it; every other failure is an
// *Error.
func Run(ctx context.Context, c Command) error {
	cmd := exec.CommandContext(ctx, c.Name, c.Args...)
	cmd.Dir, cmd.Env, cmd.Stdin = c.Dir, c.Env, c.Stdin
	// The parent-death signal is tied to the thread that starts the child: keep that thread until the
	// child has ended (golang/go#27505).
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	// A separate process group: Ctrl-C in a terminal reaches only us, and we end the children in order.
	cmd.SysProcAttr = ownGroup()
	cmd.Cancel = func() error { return endGroup(cmd.Process) }
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
		killGroup(cmd.Process) // those that survived the grace time
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

// Output runs the command and returns its stdout.
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

// tail keeps the last bytes written to it.
type tail struct{ buf []byte }

func (t *tail) Write(p []byte) (int, error) {
	t.buf = append(t.buf, p...)
	if len(t.buf) > keep {
		t.buf = append(t.buf[:0], t.buf[len(t.buf)-keep:]...)
	}
	return len(p), nil
}

func (t *tail) String() string { return string(t.buf) }
