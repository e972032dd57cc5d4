package lab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/run"
)

// Starting keeps others from starting the lab until done is called: from before WriteSpec until StartDaemon has returned.
// ErrRunning if another process starts it. The end of the process does as done.
func (h Home) Starting() (done func() error, err error) {
	if err := h.make(); err != nil {
		return nil, err
	}
	lock, err := h.lockBy(startFile)
	if err != nil {
		return nil, err
	}
	return lock.Close, nil
}

// StartDaemon starts the lab's daemon as a process and returns once it answers. command is the program that calls Run
// with this home; its output is the lab's log. If the daemon ends before it answers, the error has the end of the log. If
// ctx ends first, the daemon is ended. In both cases its rest is removed.
func (h Home) StartDaemon(ctx context.Context, command run.Command) error {
	if err := h.make(); err != nil {
		return err
	}
	if _, err := h.Clear(); err != nil {
		return err
	}
	log, err := os.OpenFile(h.Log(), os.O_WRONLY|os.O_CREATE|os.O_TRUNC|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("making the lab's log: %w", err)
	}
	defer func() { _ = log.Close() }()
	// Sockets of machines need short paths, and a killed daemon's must be found. So the lab has one recorded directory
	// for temporary files, which the next daemon removes.
	temporary, err := h.makeTemporary()
	if err != nil {
		return err
	}
	if command.Env == nil {
		command.Env = os.Environ()
	}
	command.Env = append(command.Env, "TMPDIR="+temporary)
	daemon, err := run.Detach(command, log)
	if err != nil {
		return errors.Join(err, h.removeTemporary())
	}
	if err = h.awaitDaemon(ctx, daemon); err == nil {
		return nil
	}
	if !errors.Is(err, errEnded) {
		// Only here it is known for certain: it may have neither the lab's lock nor a record of itself yet.
		daemon.End(startPatience)
	}
	_, clearing := h.Clear()
	return errors.Join(err, clearing)
}

// startPatience is how long a daemon whose start is given up may take to end its machines, before it is killed.
const startPatience = time.Minute

// errEnded means that the daemon has ended before it answered.
var errEnded = errors.New("the lab's daemon has ended")

// awaitDaemon waits until the daemon answers or has ended.
func (h Home) awaitDaemon(ctx context.Context, daemon run.Detached) error {
	client := NewClient(h)
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case err := <-daemon.Ended:
			if err == nil {
				err = errors.New("without an error")
			}
			return fmt.Errorf("%w (%w); its log %s ends with:\n%s", errEnded, err, h.Log(), h.lastWords())
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
		if _, err := client.Status(ctx); err == nil {
			return nil
		} else if !errors.Is(err, ErrNotRunning) {
			return err
		}
	}
}

// lastWords returns the last lines of the daemon's log.
func (h Home) lastWords() string {
	const lines = 15
	text, err := os.ReadFile(h.Log())
	if err != nil {
		return err.Error()
	}
	all := bytes.Split(bytes.TrimSpace(text), []byte("\n"))
	return string(bytes.Join(all[max(0, len(all)-lines):], []byte("\n")))
}

// temporaryFile holds the path of the directory of temporary files.
const temporaryFile = "temporary"

// longestTemporary is the longest path of that directory, in bytes. It leaves room for the names of sockets, whose
// paths have at most 107 bytes.
const longestTemporary = 40

func (h Home) makeTemporary() (string, error) {
	parent := os.TempDir()
	if len(parent) > longestTemporary {
		parent = "/tmp"
	}
	dir, err := os.MkdirTemp(parent, "hardtack-lab-")
	if err != nil {
		return "", fmt.Errorf("making the lab's temporary directory: %w", err)
	}
	if err := writeFile(h.path(temporaryFile), []byte(dir)); err != nil {
		return "", errors.Join(err, os.RemoveAll(dir))
	}
	return dir, nil
}

// removeTemporary removes the directory that makeTemporary made.
func (h Home) removeTemporary() error {
	text, err := os.ReadFile(h.path(temporaryFile))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("finding the lab's temporary directory: %w", err)
	}
	dir := string(text)
	if !bytes.Contains(text, []byte("/hardtack-lab-")) {
		return fmt.Errorf("removing the lab's temporary directory: %s names %q, which no lab has made", h.path(temporaryFile), dir)
	}
	return errors.Join(os.RemoveAll(dir), removeFile(h.path(temporaryFile)))
}

// specFile is the cluster document with which the lab was started.
const specFile = "cluster.yaml"

// WriteSpec keeps the cluster document in the lab's directory and returns its path.
func (h Home) WriteSpec(text []byte) (string, error) {
	runs, err := h.Running()
	if err != nil {
		return "", err
	}
	if runs {
		return "", ErrRunning
	}
	if err := h.make(); err != nil {
		return "", err
	}
	return h.path(specFile), writeFile(h.path(specFile), text)
}

// Abandon ends a lab in any state: it asks the daemon to stop, waits for at most patience, kills the daemon if it
// still runs, and removes the rest.
func (h Home) Abandon(ctx context.Context, patience time.Duration) error {
	short, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	err := NewClient(h).Down(short)
	if errors.Is(err, ErrNotRunning) { // a daemon has the lab before it answers, and after
		err = h.Gone(short)
	}
	if err != nil {
		daemon, reading := readProcess(h.path(daemonFile))
		if reading != nil {
			return errors.Join(err, reading)
		}
		if err := daemon.kill(); err != nil {
			return err
		}
	}
	if err := h.Gone(ctx); err != nil {
		return err
	}
	_, err = h.Clear()
	return err
}

// WriteKubeconfig writes a new kubeconfig to Home.Kubeconfig.
func (c *Client) WriteKubeconfig(ctx context.Context) error {
	text, err := c.Kubeconfig(ctx)
	if err != nil {
		return err
	}
	return writeFile(c.home.Kubeconfig(), text)
}
