package provisioner

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/packer-plugin-sdk/packer"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/run"
	"github.com/hardtack/packer-plugin-hardtack/pkg/image/bake"
)

// patience is how long a cancelled command may take to end. Its stdin is closed, so that it ends soon.
const patience = 5 * time.Second

// target runs scripts through Packer's communicator.
type target struct {
	comm   packer.Communicator
	prefix string // "sudo -n " unless commands run as root
}

var _ bake.Target = (*target)(nil)

// become sets prefix so that commands run as root: directly, or with sudo.
func (t *target) become(ctx context.Context) error {
	var out, errs bytes.Buffer
	if _, err := t.Run(ctx, "id -u", nil, &out, nil); err != nil {
		return err
	}
	user := strings.TrimSpace(out.String())
	if user == "0" {
		return nil
	}
	exit, err := t.Run(ctx, "sudo -n true", nil, nil, &errs)
	if err != nil {
		return err
	}
	if exit != 0 {
		return fmt.Errorf("commands on the target run as user %s, and sudo asks for a password or is not there: %s "+
			"(connect as root, or let this user run `sudo -n`)", user, strings.TrimSpace(errs.String()))
	}
	t.prefix = "sudo -n "
	return nil
}

// Run implements bake.Target. Packer's RPC does not pass cancellation on, so a command that outlives its context is
// abandoned after a while, and its further output is discarded.
func (t *target) Run(ctx context.Context, script string, stdin io.Reader, stdout, stderr io.Writer) (int, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	var open gate
	defer open.shut()
	cmd := &packer.RemoteCmd{
		Command: t.prefix + "sh -c " + run.Quote(script),
		Stdin:   stdin, Stdout: open.writer(stdout), Stderr: open.writer(stderr),
	}
	if err := t.comm.Start(ctx, cmd); err != nil {
		return 0, fmt.Errorf("starting a command on the target: %w", err)
	}
	ended := make(chan int, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case exit := <-ended:
		return status(ctx, exit)
	case <-ctx.Done():
	}
	select {
	case <-ended:
	case <-time.After(patience):
	}
	return 0, ctx.Err()
}

func status(ctx context.Context, exit int) (int, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	if exit == packer.CmdDisconnect {
		return 0, errors.New("the connection to the target was lost while a command ran (run the build again)")
	}
	return exit, nil
}

// gate is a writer that discards writes once it is shut.
type gate struct {
	mu     sync.Mutex
	isShut bool
}

func (g *gate) shut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.isShut = true
}

func (g *gate) writer(w io.Writer) io.Writer {
	if w == nil {
		return io.Discard
	}
	return gated{gate: g, w: w}
}

type gated struct {
	gate *gate
	w    io.Writer
}

func (g gated) Write(p []byte) (int, error) {
	g.gate.mu.Lock()
	defer g.gate.mu.Unlock()
	if g.gate.isShut {
		return len(p), nil
	}
	return g.w.Write(p)
}
