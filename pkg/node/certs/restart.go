package certs

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/pki"
)

// restartTurn is the turn of one member of etcd to be started again, after which it is the next one's: that of the first begins
// with the hour. Clocks that differ by less than half of it are no problem.
const restartTurn = time.Minute

// RestartOptions are the options of Restart.
type RestartOptions struct {
	// Root is the root directory of the machine; "" is "/".
	Root string
	// Only, if not empty, is the one daemon to start again.
	Only string
	// Member is the machine's member of etcd, and Members are all; without others both may be empty.
	Member  string
	Members []string
	// Healthy asks another member whether it and its quorum work.
	Healthy func(ctx context.Context, member string) error
	// Alone calls do while no other master does the same.
	Alone func(ctx context.Context, do func(context.Context) error) error
	// Restart starts a unit again that runs. With wait it returns when the unit is ready.
	Restart func(ctx context.Context, unit string, wait bool) error
	// Sleep is time.Sleep that ends with ctx.
	Sleep func(ctx context.Context, d time.Duration) error
	Now   func() time.Time
}

// PendingRestarts lists the daemons that still use what was replaced, in the order of pki.Daemons.
func PendingRestarts(root string) []string {
	var out []string
	for _, dir := range pki.Daemons() {
		if _, err := os.Stat(restartFile(root, dir)); err == nil {
			out = append(out, dir)
		}
	}
	return out
}

func restartFile(root, dir string) string {
	return filepath.Join(bundles{root: root}.dir(dir), restartMark)
}

// Restart starts those daemons again that still use what was replaced. Of several machines one at a time stops its member of
// etcd, and one its API server. What fails is tried again by the next call.
func Restart(ctx context.Context, o RestartOptions) error {
	var errs []error
	for _, dir := range PendingRestarts(o.Root) {
		if o.Only != "" && dir != o.Only {
			continue
		}
		if err := o.restart(ctx, dir); err != nil {
			errs = append(errs, fmt.Errorf("starting %s again, which still uses what was replaced: %w", dir, err))
		}
	}
	return errors.Join(errs...)
}

func (o RestartOptions) restart(ctx context.Context, dir string) error {
	mark := restartFile(o.Root, dir)
	before, err := os.Stat(mark)
	if err != nil {
		return err
	}
	do := func(ctx context.Context) error {
		// The others lead no requests anywhere: nobody need wait for them.
		return o.Restart(ctx, dir+".service", dir == pki.DirEtcd || dir == pki.DirAPIServer)
	}
	switch dir {
	case pki.DirEtcd:
		if err = o.turn(ctx); err == nil {
			err = do(ctx)
		}
	case pki.DirAPIServer:
		err = o.Alone(ctx, do)
	default:
		err = do(ctx)
	}
	if err != nil {
		return err
	}
	// What another run has replaced in the meantime is noted again.
	if after, err := os.Stat(mark); errors.Is(err, fs.ErrNotExist) || err == nil && !after.ModTime().Equal(before.ModTime()) {
		return nil
	}
	return os.Remove(mark)
}

// turn waits for the machine's turn among the members of etcd, and checks that the others work: a quorum can spare one.
func (o RestartOptions) turn(ctx context.Context) error {
	i := slices.Index(o.Members, o.Member)
	switch {
	case len(o.Members) <= 1:
		return nil
	case i < 0: // a member that only the instance's tag names
		return fmt.Errorf("which of etcd's members %v this machine is is not known here, and so not whose turn it is; next: hardtack-renew.service knows, and does it within the hour", o.Members)
	}
	round := time.Duration(len(o.Members)) * restartTurn
	now := o.Now()
	begin := now.Truncate(round).Add(time.Duration(i) * restartTurn)
	// Not in the last half of a turn, so that the next one finds this member working, or not, and never just stopping.
	if now.After(begin.Add(restartTurn / 2)) {
		begin = begin.Add(round)
	}
	if wait := begin.Sub(now); wait > 0 {
		if err := o.Sleep(ctx, wait); err != nil {
			return err
		}
	}
	for _, member := range o.Members {
		if member == o.Member {
			continue
		}
		if err := o.Healthy(ctx, member); err != nil {
			return fmt.Errorf("the member %s of etcd does not work, and a quorum needs it meanwhile: %w; next: repair it: hardtack-renew.service tries again within the hour", member, err)
		}
	}
	return nil
}
