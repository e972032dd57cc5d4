package ready

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/hardtack/packer-plugin-hardtack/pkg/node/reason"
)

// ErrNoAction means that the group does not wait for the machine: the launch is over, or has not reached the hook yet.
var ErrNoAction = errors.New("no lifecycle action is open")

// Launch is the launch of this machine in its group. Complete and Heartbeat return ErrNoAction if no action of the
// hook is open. State returns the machine's lifecycle state ("Pending:Wait"), and "" if no group has the machine.
// Errors have a reason. Complete may be called again.
type Launch interface {
	State(ctx context.Context) (string, error)
	Heartbeat(ctx context.Context) error
	Complete(ctx context.Context) error
}

// beat is the time between two heartbeats. A hook's heartbeat timeout is at least 30 s (PutLifecycleHook). Heartbeats
// can extend a launch to 48 hours or to a hundred timeouts, whichever is less.
const beat = 20 * time.Second

// Heart keeps a launch open with heartbeats.
type Heart struct {
	Launch Launch
	// Clock is the monotonic clock, in microseconds.
	Clock func() uint64
	Log   *slog.Logger
	last  uint64
}

// Beat sends a heartbeat if one is due. A failure is only logged: the launch can still be completed.
func (h *Heart) Beat(ctx context.Context) {
	now := h.Clock()
	if h.last != 0 && time.Duration(now-h.last)*time.Microsecond < beat {
		return
	}
	h.last = now
	if err := h.Launch.Heartbeat(ctx); err != nil && !errors.Is(err, ErrNoAction) {
		h.Log.WarnContext(ctx, "sending the heartbeat of the launch hook failed", "error", err)
	}
}

// settled are the beginnings of the lifecycle states in which the launch is over.
var settled = []string{"InService", "Terminating", "Terminated", "Standby", "EnteringStandby", "Detaching", "Detached"}

// Complete completes the launch, and retries until that succeeds or ctx ends. It returns the result as a sentence for
// people. report is called with the error of each failed attempt, and may be called often.
func Complete(ctx context.Context, l Launch, report func(error)) (result string, err error) {
	pause := backoff.NewExponentialBackOff()
	pause.InitialInterval, pause.MaxInterval = 500*time.Millisecond, 15*time.Second
	return backoff.Retry(ctx, func() (string, error) {
		result, err := complete(ctx, l)
		if err != nil {
			report(err)
		}
		return result, err
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
		return "no lifecycle action is open, and the machine lacks the permission to read its own state", nil
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
	// A machine can be ready before the group has reached the hook.
	return "", reason.With(reason.Hook, fmt.Errorf("the machine is %s, and its launch hook is not open yet", state))
}
