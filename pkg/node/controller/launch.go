package controller

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"time"
)

// LaunchCondition is the condition of a node by which a machine speaks of its launch: its status is True once its own checks have
// passed, and False while they make progress and it asks for the hook's time anew.
const LaunchCondition = "hardtack.dev/Working"

// AnnotationLaunch is a master's answer to that.
const AnnotationLaunch = "hardtack.dev/launch"

// Word is what a machine says of its launch; the zero value is nothing.
type Word struct {
	Works bool
	// Said is when, by the machine's clock.
	Said time.Time
}

// Answer is what a master says of the launch of a node's machine; the zero value is nothing.
type Answer struct {
	// Instance is the machine. A later one may have a node of the same name.
	Instance string `json:"instance"`
	// Said is that of the Word that is answered.
	Said time.Time `json:"said"`
	// Over: nothing is waited for any more. State is then the lifecycle state in which the machine was found, empty for a machine
	// of no group, or Launched.
	Over  bool   `json:"over,omitempty"`
	State string `json:"state,omitempty"`
	// Why is why the launch is not completed; "" if nothing is in its way.
	Why string `json:"why,omitempty"`
}

// Launched is the State of a launch that was completed by a master, and so by the machine's own word.
const Launched = "Launched"

// Launches answers the groups' hook for launches, for the groups whose machines must not.
type Launches interface {
	// Complete and Heartbeat report whether an action of the hook was open for the instance.
	Complete(ctx context.Context, group, instance string) (bool, error)
	Heartbeat(ctx context.Context, group, instance string) (bool, error)
}

const (
	// beatPause is the least time between two heartbeats for one machine, which may say what it likes.
	beatPause = time.Minute
	// maxPause is the longest time between two looks at a launch that cannot be completed: each asks EC2 and AutoScaling.
	maxPause = 30 * time.Second
)

// launch is what is known of a launch that waits for a master.
type launch struct {
	// next is when it is looked at, and pause how long after a look that changed nothing.
	next  time.Time
	pause time.Duration
	// said is what was last logged of it.
	said string
}

// open reports whether a node's machine waits for an answer.
func (n Node) open() bool {
	answered := n.Answer.Instance == n.Instance
	switch {
	case n.Word == Word{}, answered && n.Answer.Over:
		return false
	case n.Word.Works:
		return true
	}
	return !answered || n.Answer.Said.Before(n.Word.Said)
}

// due returns the nodes whose machines' launches are to be looked at now. The masters take turns, as for proofs.
func (c *Controller) due(nodes []Node, self, masters []netip.Addr) []Node {
	if c.Launches == nil {
		return nil
	}
	now := c.Now()
	have := map[string]*launch{}
	var out []Node
	for _, n := range nodes {
		l := c.launches[n.UID]
		if l == nil && n.open() {
			l = &launch{next: now.Add(time.Duration(rank(n.UID, self, masters)) * turn)}
		}
		if l == nil || n.Word == (Word{}) {
			continue
		}
		have[n.UID] = l
		if n.open() && !now.Before(l.next) && len(out) < perRun {
			out = append(out, n)
		}
	}
	c.launches = have
	return out
}

// launch answers the machines of nodes.
func (c *Controller) launch(ctx context.Context, nodes []Node, known cloud) error {
	if known.none {
		return nil
	}
	errs := make([]error, len(nodes))
	var wg sync.WaitGroup
	free := make(chan struct{}, provers)
	for i, n := range nodes {
		l := c.launches[n.UID]
		wg.Go(func() {
			free <- struct{}{}
			defer func() { <-free }()
			errs[i] = c.answer(ctx, n, l, known)
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// answer does what the machine of a node asks for, and tells it.
func (c *Controller) answer(ctx context.Context, n Node, l *launch, known cloud) error {
	l.pause = min(max(2*l.pause, pause), maxPause)
	l.next = c.Now().Add(l.pause)
	a, done, err := c.decideLaunch(ctx, n, known)
	if err != nil {
		return fmt.Errorf("the launch of node %s: %w", n.Name, err)
	}
	switch {
	case done:
		c.Log.Info("a machine's launch is answered", "node", n.Name, "instance", n.Instance, "works", n.Word.Works, "over", a.Over, "state", a.State)
		l.next, l.pause = c.Now().Add(beatPause), 0
	case a.Why == "", a.Why == l.said:
		return nil
	default:
		c.Log.Warn("a machine's launch is not completed", "node", n.Name, "says", n.Instance, "why", a.Why)
	}
	l.said = a.Why
	return c.Nodes.Tell(ctx, n, a)
}

// decideLaunch decides and does it. done is false where it is to be looked at again; then the answer has a reason, or nothing.
func (c *Controller) decideLaunch(ctx context.Context, n Node, known cloud) (a Answer, done bool, err error) {
	a = Answer{Instance: n.Instance, Said: n.Word.Said}
	machine, err := machineOf(n, known)
	if err != nil {
		a.Why = err.Error()
		return a, false, nil
	}
	switch state := machine.State; {
	case machine.Group == "":
		a.Over = true
		return a, true, nil
	case state == "Pending:Wait" && !n.Word.Works:
		done, err = c.Launches.Heartbeat(ctx, machine.Group, machine.ID)
		return a, done, err
	case state == "Pending:Wait" && !n.Ready:
		a.Why = "the node is not Ready"
	case state == "Pending:Wait" && n.Uninitialized:
		a.Why = "the node waits for the cloud's controller (its pods in kube-system say why)"
	case state == "Pending:Wait":
		a.Over, a.State = true, Launched
		// No open action: another master was faster, or another hook holds it. The state shows that at the next look.
		done, err = c.Launches.Complete(ctx, machine.Group, machine.ID)
		return a, done, err
	case state == "Pending": // it has not come to its hook yet
	case strings.HasPrefix(state, "Pending:"):
		a.Over, a.State = true, Launched
		return a, true, nil
	default:
		a.Over, a.State = true, state
		return a, true, nil
	}
	return a, false, nil
}

// machineOf returns the machine that a node was proven to be: a certificate for its name is given to the instance that has the
// name in EC2, and to no other (judgeFirst). What the node says of itself only has to agree, which that of a machine before of
// the same name does not.
func machineOf(n Node, known cloud) (Instance, error) {
	machine, ok := known.find(n.Name)
	switch {
	case !ok || !machine.Running:
		return Instance{}, fmt.Errorf("no machine of the cluster that runs is called %s", n.Name)
	case machine.ID != n.Instance:
		return Instance{}, fmt.Errorf("the node says that it is machine %q, and its name is that of %s", n.Instance, machine.ID)
	case machine.Group != "" && !machine.Roles.LaunchedByMasters():
		return Instance{}, fmt.Errorf("machines of the group %s, with %q, complete their launches themselves", machine.Group, machine.Roles)
	}
	return machine, nil
}
