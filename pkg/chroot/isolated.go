package chroot

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// flush is how long output may still arrive after the last process of a command is gone.
const flush = 2 * time.Second

// diagnosis is the most that is kept of why a root could not be entered, in bytes.
const diagnosis = 4 << 10

// isolated is one shell script in namespaces of its own.
type isolated struct {
	script         string
	args           []string
	dir            string
	env            []string
	stdin          io.Reader
	stdout, stderr io.Writer
	status         *os.File // descriptor 3 of the script; closed by run; may be nil
}

// Host runs a program of the host in namespaces of its own, so that the mounts it makes and the
// processes it starts are gone when it ends or when ctx is cancelled. A nil writer discards.
func Host(ctx context.Context, dir string, env []string, stdout, stderr io.Writer, program ...string) (exit int, err error) {
	return isolated{
		script: isolate, args: program, dir: dir, env: env, stdout: stdout, stderr: stderr,
	}.run(ctx)
}

func (i isolated) run(ctx context.Context) (int, error) {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	//nolint:forbidigo // pkg/run knows no namespaces, and a status that is not 0 is an answer here
	cmd := exec.CommandContext(ctx, "/bin/sh", append([]string{"-c", i.script, "sh"}, i.args...)...)
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = i.dir, i.env, i.stdout, i.stderr
	cmd.WaitDelay = flush
	if i.status != nil {
		defer i.status.Close()
		cmd.ExtraFiles = []*os.File{i.status}
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC,
		// Ctrl-C in a terminal reaches us alone; killing process 1 of a namespace kills all of it.
		Setpgid:   true,
		Pdeathsig: syscall.SIGKILL,
	}
	feed, err := i.feeder(cmd)
	if err != nil {
		return 0, err
	}
	// The parent-death signal is tied to the thread that starts the child: keep that thread until the
	// child has ended (golang/go#27505).
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := cmd.Start(); err != nil {
		return 0, startError(err)
	}
	if feed != nil {
		go feed(stop)
	}
	return exitStatus(ctx, cmd.Wait())
}

// feeder connects stdin. Wait must not wait for it: a reader that never ends would hold up a command
// that has ended. A reader that fails cancels the command, since to the command a cut-off input looks
// like a whole one.
func (i isolated) feeder(cmd *exec.Cmd) (func(context.CancelCauseFunc), error) {
	if i.stdin == nil {
		return nil, nil
	}
	pipe, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("pipe for stdin: %w", err)
	}
	return func(stop context.CancelCauseFunc) {
		source := &failing{Reader: i.stdin}
		_, _ = io.Copy(pipe, source) // a command may stop reading when it likes
		if source.err != nil {
			stop(fmt.Errorf("reading stdin: %w", source.err))
			return
		}
		_ = pipe.Close()
	}, nil
}

// failing remembers an error of its reader, apart from the end of the input.
type failing struct {
	io.Reader
	err error
}

func (f *failing) Read(p []byte) (int, error) {
	n, err := f.Reader.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		f.err = err
	}
	return n, err
}

func startError(err error) error {
	if errors.Is(err, syscall.EPERM) {
		return fmt.Errorf("making namespaces: %w (this needs root)", err)
	}
	return fmt.Errorf("making namespaces: %w", err)
}

func exitStatus(ctx context.Context, err error) (int, error) {
	if cause := context.Cause(ctx); cause != nil {
		return 0, cause
	}
	var exited *exec.ExitError
	switch {
	case err == nil:
		return 0, nil
	case !errors.As(err, &exited):
		return 0, fmt.Errorf("waiting for command: %w", err)
	case exited.ExitCode() < 0:
		return 0, fmt.Errorf("command in namespace: %w", err)
	}
	return exited.ExitCode(), nil
}

// statusPipe returns the writing end for a child, and a function that returns what the child wrote,
// to be called once the child has ended.
func statusPipe() (*os.File, func() string, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, nil, fmt.Errorf("status pipe: %w", err)
	}
	text := make(chan string, 1)
	go func() {
		defer r.Close()
		data, _ := io.ReadAll(io.LimitReader(r, diagnosis)) // what there is, is the diagnosis
		text <- strings.TrimSpace(string(data))
	}()
	return w, func() string { return <-text }, nil
}
