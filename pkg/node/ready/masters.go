package ready

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/node/reason"
)

// Answer is a master's answer to what this machine has said of its launch; the zero value is none.
type Answer struct {
	// Over: there is nothing to wait for any more. A master has completed the launch (Launched), or has found the machine in
	// the lifecycle State, which is empty for a machine of no group.
	Over, Launched bool
	State          string
	// Why is why it is not completed yet; "" if nobody has said.
	Why string
}

// Self is this machine's node, and what it says there: a node can write its own status, and no other's. Both methods may be
// repeated.
type Self interface {
	// Say says whether the checks have passed. That they have not asks for the time of the launch anew.
	Say(ctx context.Context, works bool, text string) error
	Answer(ctx context.Context) (Answer, error)
}

const (
	// slow is after which time since its boot a machine asks for the time of its launch anew, and again is how long until it does
	// once more. Most machines work long before, and cost no call of AWS by that.
	slow  = 5 * time.Minute
	again = 5 * time.Minute
	// Patience is how long a machine waits for a master before it says so. A master looks every few seconds, and another one
	// does after a quarter of a minute.
	Patience = time.Minute
	// answerMin and answerMax are the wait between two looks for the answer.
	answerMin = time.Second
	answerMax = 5 * time.Second
)

// ByMasters is the launch of a machine whose group does not let it answer the hook: a master does, by this machine's word. Own is
// what the group lets the machine do: an older stack still lets it complete the launch, and then no master need know how.
type ByMasters struct {
	Own Launch
	// Node returns this machine's node, and an error until the machine knows its name.
	Node func() (Self, error)
	// Clock is the monotonic clock, in microseconds since the boot.
	Clock func() uint64

	asked time.Duration
	// found is the answer, once there is one.
	found Answer
	// refused: the machine's group does not let it complete the launch.
	refused bool
}

var _ Launch = (*ByMasters)(nil)

// State returns what the answer has, or else what AutoScaling says.
func (b *ByMasters) State(ctx context.Context) (string, error) {
	if b.found.Over {
		return b.found.State, nil
	}
	return b.Own.State(ctx)
}

// Heartbeat asks the masters for the time of the launch anew, if the boot is slow. Before the machine is a node it can ask nobody:
// its group has given it time enough to come so far.
func (b *ByMasters) Heartbeat(ctx context.Context) error {
	now := time.Duration(b.Clock()) * time.Microsecond
	if now < slow || b.asked != 0 && now-b.asked < again {
		return nil
	}
	node, err := b.Node()
	if err != nil {
		return ErrNoAction
	}
	if err := node.Say(ctx, false, "not every check has passed, and there is progress"); err != nil {
		return err
	}
	b.asked = now
	return nil
}

// Complete says that every check has passed, and waits for a master to complete the launch.
func (b *ByMasters) Complete(ctx context.Context) error {
	node, err := b.Node()
	if err != nil {
		return reason.With(reason.NotRegistered, err)
	}
	if err := node.Say(ctx, true, "every check has passed"); err != nil {
		return reason.With(reason.Hook, err)
	}
	if err := b.await(ctx, node); err != nil {
		return err
	}
	switch {
	case b.found.Launched:
		return nil
	case b.found.Over:
		return ErrNoAction
	case !b.refused:
		err := b.Own.Complete(ctx)
		if b.refused = reason.Of(err) == reason.Permission; !b.refused {
			return err
		}
	}
	why := b.found.Why
	if why == "" {
		why = "none has answered"
	}
	return &reason.Error{Reason: reason.Hook, Err: fmt.Errorf("masters complete the launches of this machine's group, and have not done so within %v: %s", Patience, why),
		Next: "journalctl -u hardtack-controller on the masters says why; masters of an older image do not know how: refresh them first"}
}

// await looks for the answer until there is one, or Patience is over.
func (b *ByMasters) await(ctx context.Context, node Self) (err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, Patience, errPatience)
	defer cancel()
	for pause := answerMin; ; pause = min(pause*3/2, answerMax) {
		var found Answer
		if found, err = node.Answer(ctx); err == nil {
			b.found = found
		}
		if b.found.Over {
			return nil
		}
		select {
		case <-ctx.Done():
			if errors.Is(context.Cause(ctx), errPatience) {
				return reason.With(reason.Hook, notCut(err))
			}
			return ctx.Err()
		case <-time.After(pause):
		}
	}
}

var errPatience = errors.New("no master has answered")

// notCut returns no error for a question that only our own patience has cut.
func notCut(err error) error {
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, errPatience) {
		return nil
	}
	return err
}
