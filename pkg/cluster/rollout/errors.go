package rollout

import (
	"fmt"
	"strings"
	"time"
)

// Loss describes the data that could be lost with a group's machines, and why.
type Loss struct {
	// Group is the group's name in the document.
	Group string `json:"group"`
	Text  string `json:"text"`
}

// Refusal names the groups that are not replaced without permission, and those that are safe to replace.
type Refusal struct {
	Losses []Loss `json:"losses"`
	// Safe are the groups that may be replaced, by their names in the document.
	Safe []string `json:"safe"`
}

func (r *Refusal) Error() string {
	var b strings.Builder
	b.WriteString("replacing machines of etcd: their data may be lost with them")
	for _, l := range r.Losses {
		fmt.Fprintf(&b, "\n  %s: %s", l.Group, l.Text)
	}
	if len(r.Safe) == 0 {
		b.WriteString("\nnothing else is to be replaced")
	}
	return b.String()
}

// UnreadError names groups that could not be read, and whose machines are therefore not as wanted, or not known to be.
type UnreadError struct {
	Groups []Unread
	// Blocked are groups of the control plane of which no machine ends meanwhile, Safe those that can be replaced without the
	// unread ones, by their names in the document. Both are empty if only the unread groups themselves are concerned.
	Blocked, Safe []string
}

func (e *UnreadError) Error() string {
	var b strings.Builder
	if len(e.Blocked) > 0 {
		fmt.Fprintf(&b, "replacing machines of %s: how much of the control plane serves is not known without groups that could not be read", strings.Join(e.Blocked, ", "))
	} else {
		b.WriteString("replacing machines: these groups could not be read, and their machines stay as they are")
	}
	for _, u := range e.Groups {
		b.WriteString("\n  " + u.Why)
	}
	return b.String()
}

// RefreshError means that a refresh by AutoScaling has failed. The consoles and journals of its machines say why.
type RefreshError struct {
	// Group is the group as it was read after the refresh had ended.
	Group Group
}

func (e *RefreshError) Error() string {
	g := e.Group
	return fmt.Sprintf("refreshing %s: AutoScaling says %s, %s\n%d of %d machines are as wanted, and the group launches version %d; "+
		"consoles and journals of those that failed say why: fix the cause and run this again",
		g.Name, g.Refresh.Status, g.Refresh.Reason, len(g.Machines)-len(g.Stale()), len(g.Machines), g.Launches.Number)
}

// StuckError means that a rollout has made no progress for too long.
type StuckError struct {
	// Step is the step that was waited for, Waited for how long. Group is the name of its group in the document; empty
	// if the step is about no group.
	Step   Step
	Group  string
	Waited time.Duration
}

func (e *StuckError) Error() string {
	subject := e.Step.Group
	if subject == "" {
		subject = "the cluster"
	}
	return fmt.Sprintf("waiting for %s: nothing has changed for %s: %s", subject, e.Waited.Round(time.Second), e.Step.Reason)
}

// Interrupted means that the context of a run has ended.
type Interrupted struct {
	// Text says which operations continue.
	Text string
	// Refreshing reports whether AutoScaling continues with a refresh. CancelOnInterrupt would have cancelled it.
	Refreshing bool
	Err        error
}

func (i *Interrupted) Error() string { return i.Text }

func (i *Interrupted) Unwrap() error { return i.Err }
