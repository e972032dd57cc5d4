package notice

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Action is what is done about a notice.
type Action string

// The actions.
const (
	// Drain cordons the node and evicts its pods.
	Drain Action = "drain"
	// Cordon keeps new pods away.
	Cordon Action = "cordon"
	// Ignore does nothing.
	Ignore Action = "ignore"
)

// Actions lists them, as an operator reads them.
var Actions = []string{string(Drain), string(Cordon), string(Ignore)}

// Policy is what is done about each kind of notice.
type Policy struct {
	Spot, Scheduled, Rebalance Action
}

// DefaultPolicy is that of aws-node-termination-handler 1.25 where it watches metadata (enableSpotInterruptionDraining and
// enableScheduledEventDraining are true, enableRebalanceMonitoring and enableRebalanceDraining false): a recommendation is no
// interruption, and where nothing launches another machine its pods would only lose a place.
func DefaultPolicy() Policy { return Policy{Spot: Drain, Scheduled: Drain, Rebalance: Ignore} }

// of returns what is done about a kind.
func (p Policy) of(k Kind) Action {
	switch k {
	case Spot:
		return p.Spot
	case Scheduled:
		return p.Scheduled
	case Rebalance:
		return p.Rebalance
	}
	return Ignore
}

// String is the policy as the tag of a group.
func (p Policy) String() string {
	return fmt.Sprintf("%s=%s %s=%s %s=%s", Spot, p.Spot, Scheduled, p.Scheduled, Rebalance, p.Rebalance)
}

// ParsePolicy reads what String writes; what it does not name is as in DefaultPolicy.
func ParsePolicy(text string) (Policy, error) {
	p := DefaultPolicy()
	for part := range strings.FieldsSeq(text) {
		kind, action, _ := strings.Cut(part, "=")
		if !slices.Contains(Actions, action) {
			return DefaultPolicy(), fmt.Errorf("%q: %q is not one of %s", part, action, strings.Join(Actions, ", "))
		}
		switch Kind(kind) {
		case Spot:
			p.Spot = Action(action)
		case Scheduled:
			p.Scheduled = Action(action)
		case Rebalance:
			p.Rebalance = Action(action)
		default:
			return DefaultPolicy(), fmt.Errorf("%q: %q is no kind of notice", part, kind)
		}
	}
	return p, nil
}

// lastWord is how much earlier than EC2 acts an eviction is over: its report is still to be written.
const lastWord = 10 * time.Second

// Order is what is to be done about a node now. The zero value is nothing.
type Order struct {
	Action Action
	Notice Notice
	// Until is when an eviction is over; zero for a cordon.
	Until time.Time
}

// Due returns what is to be done at a time: of several evictions the one that is over first, and an eviction rather than a
// cordon. drain is how long a machine may take for its pods.
//
// A scheduled event may be weeks ahead, in which a machine without pods would be of no use: what is done about it begins when
// drain is left.
func (p Policy) Due(all []Notice, now time.Time, drain time.Duration) Order {
	var due Order
	for _, n := range all {
		o := Order{Action: p.of(n.Kind), Notice: n}
		switch {
		case o.Action == Ignore, n.Kind == Scheduled && now.Before(n.At.Add(-drain)):
			continue
		case o.Action == Cordon:
		case n.Kind == Rebalance:
			o.Until = n.At.Add(drain)
		default:
			o.Until = n.At.Add(-lastWord)
		}
		switch {
		case due.Action == "", due.Action == Cordon && o.Action == Drain, due.Action == Drain && o.Action == Drain && o.Until.Before(due.Until):
			due = o
		}
	}
	return due
}
