package run

import (
	"fmt"
	"os"
	"os/exec"
	"time"
)

// Detached is a process that keeps running when this one ends.
type Detached struct {
	PID int
	// Ended receives one value if the process ends while this one runs, nil for success, and is closed then.
	Ended <-chan error

	process *os.Process
}

// Detach starts a command in a new session, without a terminal: neither Ctrl-C nor the end of this process ends it. Its
// output goes to output, and its stdin is empty. Stdin, Stdout and Stderr of the command are ignored.
func Detach(c Command, output *os.File) (Detached, error) {
	cmd := exec.Command(c.Name, c.Args...) //nolint:noctx // it is to live on when everything here has ended
	cmd.Dir, cmd.Env = c.Dir, c.Env
	cmd.Stdout, cmd.Stderr = output, output
	cmd.SysProcAttr = ownSession()
	if err := cmd.Start(); err != nil {
		return Detached{}, fmt.Errorf("starting %s: %w", c.Name, err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait(); close(ended) }()
	return Detached{PID: cmd.Process.Pid, Ended: ended, process: cmd.Process}, nil
}

// End asks the process to end, kills its group if it still runs after patience, and returns when it has ended.
func (d Detached) End(patience time.Duration) {
	_ = endGroup(d.process) // it leads its session, and so its group; one that has ended needs nothing
	select {
	case <-d.Ended: //nolint:errcheck // it was told to end: how it did says nothing
	case <-time.After(patience):
		killGroup(d.process)
		<-d.Ended //nolint:errcheck // as above
	}
}
