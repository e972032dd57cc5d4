package ready_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/node/ready"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/reason"
)

// self is a node with what a master answers, one answer for each look; the last one is repeated.
type self struct {
	answers []ready.Answer
	err     error
	said    []bool
}

func (s *self) Say(_ context.Context, works bool, text string) error {
	if text == "" {
		return errors.New("nothing is said")
	}
	s.said = append(s.said, works)
	return s.err
}

func (s *self) Answer(context.Context) (ready.Answer, error) {
	if len(s.answers) == 0 {
		return ready.Answer{}, s.err
	}
	a := s.answers[0]
	if len(s.answers) > 1 {
		s.answers = s.answers[1:]
	}
	return a, s.err
}

// never is a group that lets its machines do nothing.
type never struct{ calls int }

func (n *never) State(context.Context) (string, error) { return "Pending:Wait", nil }
func (n *never) Heartbeat(context.Context) error       { n.calls++; return nil }
func (n *never) Complete(context.Context) error {
	n.calls++
	return reason.Errorf(reason.Permission, "AccessDenied")
}

// TestByMasters completes launches that are a master's to complete.
func TestByMasters(t *testing.T) {
	const completed = "the group's launch hook is completed"
	wait := ready.Answer{}
	for name, tt := range map[string]struct {
		self *self
		// own is the group; nil lets its machines do nothing.
		own  ready.Launch
		want string
		// reported is in the only report, if there is one.
		reported string
		within   time.Duration
	}{
		"a master completes it":  {self: &self{answers: []ready.Answer{wait, wait, {Over: true, Launched: true}}}, want: completed, within: 10 * time.Second},
		"a reboot, answered":     {self: &self{answers: []ready.Answer{{Over: true, Launched: true}}}, want: completed},
		"a reboot, not answered": {self: &self{answers: []ready.Answer{wait, {Over: true, State: "InService"}}}, want: "the launch is over already: the machine is InService", within: 5 * time.Second},
		"no group":               {self: &self{answers: []ready.Answer{{Over: true}}}, want: "the machine belongs to no group"},
		"an older stack":         {self: &self{}, own: &launch{}, want: completed, within: ready.Patience + 5*time.Second},
		"an older stack, over":   {self: &self{}, own: &launch{open: -1, states: []string{"InService"}}, want: "the launch is over already: the machine is InService", within: ready.Patience + 5*time.Second},
		"masters of an older image": {self: &self{answers: append(slices.Repeat([]ready.Answer{wait}, 30), ready.Answer{Over: true, Launched: true})}, want: completed,
			reported: "none has answered", within: 4 * ready.Patience},
		"refused for a while": {self: &self{answers: append(slices.Repeat([]ready.Answer{{Why: "the node is not Ready"}}, 30), ready.Answer{Over: true, Launched: true})}, want: completed,
			reported: "the node is not Ready", within: 4 * ready.Patience},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				own := &never{}
				b := &ready.ByMasters{Own: own, Node: func() (ready.Self, error) { return tt.self, nil }}
				if tt.own != nil {
					b.Own = tt.own
				}
				began := time.Now()
				var reported []string
				got, err := ready.Complete(t.Context(), b, func(err error) {
					f := reason.Explain("u", err)
					if f.Reason != reason.Hook || !strings.Contains(f.Next, "hardtack-controller on the masters") {
						t.Errorf("reported %+v", f)
					}
					reported = append(reported, f.Cause)
				})
				if err != nil || got != tt.want || time.Since(began) > tt.within {
					t.Errorf("%q, %v after %v", got, err, time.Since(began))
				}
				if len(reported) > 0 != (tt.reported != "") || len(reported) > 0 && !strings.Contains(reported[0], tt.reported) {
					t.Errorf("reported %q", reported)
				}
				if own.calls > 1 {
					t.Errorf("the group has refused %d calls, and one says it", own.calls)
				}
				if len(tt.self.said) == 0 || slices.Contains(tt.self.said, false) {
					t.Errorf("said %v", tt.self.said)
				}
			})
		})
	}
}

// TestByMastersEnds ends while no master answers, and while the API server is away.
func TestByMastersEnds(t *testing.T) {
	for _, fault := range []error{nil, errors.New("away")} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeoutCause(t.Context(), 20*time.Second, errors.New("the machine ends"))
			defer cancel()
			b := &ready.ByMasters{Own: &never{}, Node: func() (ready.Self, error) { return &self{err: fault}, nil }}
			if got, err := ready.Complete(ctx, b, func(error) {}); err == nil {
				t.Errorf("completed: %q", got)
			}
		})
	}
}

// TestByMastersAsks has a boot that takes long: it asks for more time now and then, and a usual one never does.
func TestByMastersAsks(t *testing.T) {
	now, s, own := uint64(0), &self{}, &never{}
	unnamed := errors.New("no name yet")
	b := &ready.ByMasters{Own: own, Node: func() (ready.Self, error) { return s, unnamed }, Clock: func() uint64 { return now }}
	for ; now < uint64(20*time.Minute/time.Microsecond); now += uint64(20 * time.Second / time.Microsecond) {
		if now > uint64(7*time.Minute/time.Microsecond) {
			unnamed = nil
		}
		if err := b.Heartbeat(t.Context()); err != nil && !errors.Is(err, ready.ErrNoAction) {
			t.Fatal(err)
		}
		if now < uint64(5*time.Minute/time.Microsecond) && len(s.said) > 0 {
			t.Fatal("it asks for more time at once")
		}
	}
	if !slices.Equal(s.said, []bool{false, false, false}) || own.calls > 0 {
		t.Errorf("said %v, %d calls of AWS", s.said, own.calls)
	}
}
