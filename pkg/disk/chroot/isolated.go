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

// maxDiagnosis is the most that is kept of why a root could not be entered, in bytes.
const maxDiagnosis = 4 << 10

// isolated is a shell script that runs in its own namespaces.
type isolated struct {
	script         string
	args           []string
	dir            string
	env            []string
	stdin          io.Reader
	stdout, stderr io.Writer
	status         *os.File // descriptor 3 of the script; closed by run; may be nil
}

// RunHost runs a program of the host in its own namespaces, so that its mounts and processes disappear when it ends or
// when ctx is cancelled. Writers may be nil.
func RunHost(ctx context.Context, dir string, env []string, stdout, stderr io.Writer, program ...string) (exit int, err error) {
	return isolated{
		script: isolate, args: program, dir: dir, env: env, stdout: stdout, stderr: stderr,
	}.run(ctx)
}

func (i isolated) run(ctx context.Context) (int, error) {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	//nolint:forbidigo // pkg/base/run knows no namespaces, and a status that is not 0 is an answer here
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
		source := &errorReader{Reader: i.stdin}
		_, _ = io.Copy(pipe, source) // a command may stop reading when it likes
		if source.err != nil {
			stop(fmt.Errorf("reading stdin: %w", source.err))
			return
		}
		_ = pipe.Close()
	}, nil
}

// errorReader records an error of its reader other than io.EOF.
type errorReader struct {
	io.Reader
	err error
}

func (f *errorReader) Read(p []byte) (int, error) {
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
		data, _ := io.ReadAll(io.LimitReader(r, maxDiagnosis)) // a part of the text is better than none
		text <- strings.TrimSpace(string(data))
	}()
	return w, func() string { return <-text }, nil
}
