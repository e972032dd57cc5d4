package ready

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/hardtack/packer-plugin-hardtack/pkg/agent/reason"
)

// ErrNoAction says that the group waits for nothing: the launch is over, or not so far yet.
var ErrNoAction = errors.New("no lifecycle action is open")

// Launch is the launch of this machine in its group. Complete and Heartbeat return ErrNoAction where no action of
// the hook is open. State is the machine's lifecycle state ("Pending:Wait"), and "" where the group has no such
// machine. Errors have a reason. Completing twice does no harm.
type Launch interface {
	State(ctx context.Context) (string, error)
	Heartbeat(ctx context.Context) error
	Complete(ctx context.Context) error
}

// beat is how often a launch is kept open. A hook's heartbeat timeout is at least 30 s (PutLifecycleHook), and it
// may be extended for 48 hours, or a hundred times it.
const beat = 20 * time.Second

// Heart keeps a launch open, not more often than it needs to be.
type Heart struct {
	Launch Launch
	// Clock is the monotonic clock, in microseconds.
	Clock func() uint64
	Log   *slog.Logger
	last  uint64
}

// Beat says that the machine is still at work. What goes wrong is not fatal: the launch is completed all the same.
func (h *Heart) Beat(ctx context.Context) {
	now := h.Clock()
	if h.last != 0 && time.Duration(now-h.last)*time.Microsecond < beat {
		return
	}
	h.last = now
	if err := h.Launch.Heartbeat(ctx); err != nil && !errors.Is(err, ErrNoAction) {
		h.Log.WarnContext(ctx, "the launch could not be kept open", "error", err)
	}
}

// settled are the states in which a machine is no longer launched, by their beginnings.
var settled = []string{"InService", "Terminating", "Terminated", "Standby", "EnteringStandby", "Detaching", "Detached"}

// Complete ends the launch, and tries until it is over. What it says is a sentence for people. report gets
// what keeps it from that; it is called at each failure, and may be called often.
func Complete(ctx context.Context, l Launch, report func(error)) (said string, err error) {
	pause := backoff.NewExponentialBackOff()
	pause.InitialInterval, pause.MaxInterval = 500*time.Millisecond, 15*time.Second
	return backoff.Retry(ctx, func() (string, error) {
		said, err := complete(ctx, l)
		if err != nil {
			report(err)
		}
		return said, err
	}, backoff.WithBackOff(pause), backoff.WithMaxElapsedTime(0))
}

func complete(ctx context.Context, l Launch) (string, error) {
	err := l.Complete(ctx)
	if err == nil {
		return "the group's launch hook is completed", nil
	}
	if !errors.Is(err, ErrNoAction) {
		return "", reason.With(reason.Hook, err)
	}
	state, err := l.State(ctx)
	switch {
	case reason.Of(err) == reason.Permission:
		return "no lifecycle action is open, and whether the machine is in service it may not know", nil
	case err != nil:
		return "", reason.With(reason.Hook, err)
	case state == "":
		return "the machine belongs to no group", nil
	}
	for _, s := range settled {
		if strings.HasPrefix(state, s) {
			return "the launch is over already: the machine is " + state, nil
		}
	}
	// A quick machine is ready before the group waits for it.
	return "", reason.With(reason.Hook, fmt.Errorf("the machine is %s, and its launch hook is not open yet", state))
}
