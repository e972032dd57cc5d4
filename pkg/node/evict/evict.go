// Package evict moves the pods away from machines that are about to end.
//
// Its rule: what it does next follows from what it sees, the machine's lifecycle state, the notices that its node shows and the
// mark on its node, so that any master goes on where another stopped. Pods leave by the API's eviction alone, so that disruption
// budgets hold.
package evict

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/node/notice"
)

// Annotation is the mark of a node from which we evict. It is how a master knows what another has begun.
const Annotation = "hardtack.dev/evicting"

// ExcludeLabel is of a node that the load balancers of Services leave out: a node that is merely cordoned stays a target until its
// machine's power is off (KEP-1143).
const ExcludeLabel = "node.kubernetes.io/exclude-from-external-load-balancers"

// LeaseName is the Lease of kube-system that the one master has that evicts. Another takes it LeaseLife after its holder's
// last step.
const (
	LeaseName = "hardtack-evict"
	LeaseLife = 30 * time.Second
)

const (
	// idle is the time between two looks at the groups while no machine ends: each is one call of AutoScaling. A hook holds
	// a machine for at least twice as long.
	idle = 15 * time.Second
	// busy is the time between two rounds of evictions, which is kubectl drain's.
	busy = 5 * time.Second
	// perStep bounds a step. With busy it is less than LeaseLife, so that the holder keeps its lease while it works.
	perStep = 20 * time.Second
	// spare is how much earlier than the hook's time we stop: a last step, and the call that completes the hook.
	spare = perStep + 2*busy
	// unheld is how long pods are evicted from a machine that no hook of ours holds, and that has no notice with a time.
	unheld = 5 * time.Minute
	// atOnce is from how many nodes we evict at the same time.
	atOnce = 16
)

// Linger is Evictor.Linger of a cluster with load balancers of Services. Nothing tells when they have left a node out: the cloud's
// controller asks them seconds after the node's label, and they send new connections for some seconds more.
const Linger = 30 * time.Second

// Machine is a machine of a group whose machines are nodes.
type Machine struct {
	ID, Group string
	// State is AutoScaling's lifecycle state: "InService", "Terminating:Wait"; empty for a machine of no group.
	State string
	// Policy is what is done about the notices of the group's machines.
	Policy notice.Policy
}

// Sight is what AutoScaling shows.
type Sight struct {
	Machines []Machine
	// Closing: no group of masters is to have a machine, so that the cluster ends and its pods have nowhere to go.
	Closing bool
}

// Machines reads the cluster's groups, and answers their hooks.
type Machines interface {
	Sight(ctx context.Context) (Sight, error)
	// Hold restarts the time of the hook that holds a machine for us, and returns it; 0 if no such hook is open.
	Hold(ctx context.Context, m Machine) (time.Duration, error)
	// Drain returns how long the hook holds a machine of a group; 0 if the group has no such hook.
	Drain(ctx context.Context, group string) (time.Duration, error)
	// Release lets a machine end. It reports whether a hook of ours was open.
	Release(ctx context.Context, m Machine) (bool, error)
}

// Node is a node as the API server shows it.
type Node struct {
	Name, UID string
	// Instance is the ID of the machine that the node says it is, "" if it says none.
	Instance string
	// Created is when the node joined.
	Created time.Time
	// Version is the object's, for Change.
	Version       string
	Unschedulable bool
	// Exclude is the value of ExcludeLabel, nil if it has none.
	Exclude *string
	// Lost: nothing has been heard of its kubelet for a while, so that its pods end no more.
	Lost bool
	// Mark is the value of Annotation, "" if it has none.
	Mark string
	// Ending is the message of notice.Condition, which is the node's own word; "" if its status is not True.
	Ending string
}

// Pod is a pod of a node.
type Pod struct {
	Namespace, Name, UID string
	// Mirror: it shows a static pod of the kubelet. Controller is the kind of the object that controls it, "" for none.
	Mirror     bool
	Controller string
	// Ending: it is deleted, and its containers may still run.
	Ending bool
}

// moves reports whether a pod leaves, by the rules of kubectl drain --ignore-daemonsets --delete-emptydir-data --force: a
// DaemonSet would make its pod anew at once, and nothing but the kubelet ends a static pod. A pod that nobody makes anew
// leaves too: it ends with the machine in any case, and by an eviction it gets its grace period.
func (p Pod) moves() bool { return !p.Mirror && p.Controller != "DaemonSet" }

func (p Pod) String() string { return p.Namespace + "/" + p.Name }

// BlockedError is the API server's refusal to evict a pod now, with its reason.
type BlockedError struct{ Why string }

func (e *BlockedError) Error() string { return e.Why }

// ErrChanged means that a node was changed or deleted since it was read.
var ErrChanged = errors.New("the node has changed meanwhile")

// The reasons of the last Event about a machine: all its pods have left, or not.
const (
	ReasonEvicted    = "Evicted"
	ReasonIncomplete = "EvictionIncomplete"
)

// Event is an Event of a node. An Event with the ID of an earlier one replaces it.
type Event struct {
	ID, Reason, Message string
	Warning             bool
}

// Cluster is the cluster's API. All methods may be repeated.
type Cluster interface {
	Nodes(ctx context.Context) ([]Node, error)
	// Change sets the node's Mark ("" removes it), Unschedulable and Exclude (nil removes it) to those of n if it still has n's
	// Version. The error matches ErrChanged if it has not.
	Change(ctx context.Context, n Node) error
	// Pods returns those of a node.
	Pods(ctx context.Context, node string) ([]Pod, error)
	// Evict asks for a pod's eviction. The error is a *BlockedError if that is refused; a pod that is gone is none.
	Evict(ctx context.Context, p Pod) error
	Tell(ctx context.Context, n Node, e Event) error
	// Turn takes or keeps the lease, and reports whether this master has it.
	Turn(ctx context.Context) (bool, error)
}

// mark is the content of Annotation.
type mark struct {
	// Instance is the machine that ends. A later one may have the same name.
	Instance string    `json:"instance"`
	Since    time.Time `json:"since"`
	// Until is when the machine may end with its pods: the hook's time is then nearly over.
	Until time.Time `json:"until"`
	// Held: a hook of ours holds the machine, and Released is when it was completed.
	Held     bool      `json:"held"`
	Released time.Time `json:"released,omitzero"`
	// Cordoned: we have cordoned the node, and uncordon it if the machine stays.
	Cordoned bool `json:"cordoned"`
	// Excluded: we have taken the node out of load balancers, and take it back if the machine stays.
	Excluded bool `json:"excluded,omitempty"`
	// Order is what is done for a notice: "drain: spot terminate at 2026-03-01T12:02:00Z"; empty if AutoScaling ends the machine.
	Order string `json:"order,omitempty"`
}

func (m mark) String() string {
	text, _ := json.Marshal(m) // never fails: it has texts, times and booleans
	return string(text)
}

// readMark returns the zero value for a node without a mark, and for one that nobody can read: it is written anew.
func readMark(n Node) (m mark) {
	if json.Unmarshal([]byte(n.Mark), &m) != nil {
		return mark{}
	}
	return m
}

// Evictor evicts pods from machines that end. Every master has one.
type Evictor struct {
	Cluster  Cluster
	Machines Machines
	Now      func() time.Time
	Log      *slog.Logger
	// Linger is how long after its node's mark a machine is held at least; 0 where no load balancer of a Service has nodes.
	Linger time.Duration
	// Turn, if not nil, is called at each turn of Run.
	Turn func()

	// held: this master had the turn at its last step.
	held bool

	mu sync.Mutex
	// told is what was last reported of a node's pods, by the node's UID.
	told map[string]string
	// released are the machines without a mark whose hook was completed.
	released map[string]bool
}

// Run runs until ctx ends.
func (e *Evictor) Run(ctx context.Context) {
	for ctx.Err() == nil {
		if e.Turn != nil {
			e.Turn()
		}
		pause := e.run(ctx)
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

func (e *Evictor) run(ctx context.Context) (pause time.Duration) {
	step, cancel := context.WithTimeout(ctx, perStep)
	defer cancel()
	work, err := e.Step(step)
	if err != nil && ctx.Err() == nil {
		e.Log.Warn("evicting pods from machines that end, which is tried again", "error", err)
	}
	if work {
		return busy
	}
	return idle
}

// Step looks once, and does what is due now. It reports whether there is more to do. It continues after errors, and
// returns all of them.
func (e *Evictor) Step(ctx context.Context) (bool, error) {
	due, err := e.look(ctx)
	if err != nil || len(due) == 0 {
		e.held = false
		return false, err
	}
	mine, err := e.Cluster.Turn(ctx)
	if err != nil || !mine {
		e.held = false
		return true, err
	}
	if !e.held { // what was seen before it was our turn may be older than another master's last step
		e.held = true
		if due, err = e.look(ctx); err != nil {
			return true, err
		}
	}
	return true, e.each(ctx, due)
}

// task is what is due for one machine.
type task struct {
	machine Machine
	// node is the zero value for a machine without one.
	node Node
	mark mark
	// order is what its notices ask for; the zero value is nothing.
	order notice.Order
	do    func(e *Evictor, ctx context.Context, t task) error
}

// look returns what is due. It reads nodes before machines: a mark on a node is then no newer than the state of the
// machine for which it was made.
func (e *Evictor) look(ctx context.Context) ([]task, error) {
	nodes, err := e.Cluster.Nodes(ctx)
	if err != nil {
		return nil, err
	}
	seen, err := e.Machines.Sight(ctx)
	if err != nil {
		return nil, err
	}
	e.forget(nodes, seen.Machines)
	of := e.machines(nodes)
	var due []task
	for _, m := range append(seen.Machines, groupless(nodes, seen.Machines)...) {
		t := task{machine: m, node: of[m.ID]}
		t.mark = readMark(t.node)
		t.order, err = e.order(ctx, t)
		t.do = e.decide(t, seen.Closing)
		if err != nil && stateOf(m) == stays { // others do not wait for it, and nothing is undone
			fault := err
			t.do = func(*Evictor, context.Context, task) error { return fault }
		}
		if t.do != nil {
			due = append(due, t)
		}
	}
	return due, nil
}

// machines returns the nodes by their machines. A kubelet says itself which machine it runs on when its node joins, and nobody can
// change it later: of two that say the same the first is believed, since its machine had not been taken over by then.
func (e *Evictor) machines(nodes []Node) map[string]Node {
	of := map[string]Node{}
	for _, n := range slices.SortedStableFunc(slices.Values(nodes), func(a, b Node) int { return a.Created.Compare(b.Created) }) {
		first, taken := of[n.Instance]
		switch {
		case n.Instance == "":
		case !taken:
			of[n.Instance] = n
		case e.new(n, "machine of "+first.Name):
			e.Log.Warn("a node says that it is machine "+n.Instance+", as an older one does, and is not believed: its pods stay when that machine ends",
				"node", n.Name, "older", first.Name)
		}
	}
	return of
}

// groupless are the machines of nodes that are in no group, and have notices or had some.
func groupless(nodes []Node, machines []Machine) []Machine {
	known := map[string]bool{"": true}
	for _, m := range machines {
		known[m.ID] = true
	}
	var out []Machine
	for _, n := range nodes {
		if !known[n.Instance] && (n.Ending != "" || readMark(n).Order != "") {
			known[n.Instance] = true
			out = append(out, Machine{ID: n.Instance, Policy: notice.DefaultPolicy()})
		}
	}
	return out
}

// order returns what the notices of a machine's node ask for now. What nobody can read asks for nothing.
func (e *Evictor) order(ctx context.Context, t task) (notice.Order, error) {
	if t.node.Ending == "" {
		return notice.Order{}, nil
	}
	all, err := notice.Parse(t.node.Ending)
	if err != nil {
		if e.new(t.node, "unread "+t.node.Ending) {
			e.Log.Warn("a node shows notices that are not of the known form, and nothing is done about them", "node", t.node.Name, "error", err)
		}
		return notice.Order{}, nil
	}
	drain := unheld
	if t.machine.Group != "" {
		hook, err := e.Machines.Drain(ctx, t.machine.Group)
		if err != nil {
			return notice.Order{}, err
		}
		drain = cmp.Or(hook, unheld)
	}
	return t.machine.Policy.Due(all, e.Now(), drain), nil
}

// of is the order as a mark has it.
func of(o notice.Order) string {
	if o.Action == "" {
		return ""
	}
	return string(o.Action) + ": " + o.Notice.String()
}

// decide returns what is to be done about a machine, nil for nothing.
func (e *Evictor) decide(t task, closing bool) func(*Evictor, context.Context, task) error {
	ours := t.mark.Instance == t.machine.ID
	switch stateOf(t.machine) {
	case stays:
		return stay(t, ours)
	case waits:
		switch {
		case ours && t.mark.Order == "" && !t.mark.Released.IsZero(), e.released[t.machine.ID]:
		case t.node.Name == "", closing:
			return (*Evictor).pass
		case !ours, t.mark.Order != "": // what was begun for a notice has the notice's time, and knows of no hook
			return (*Evictor).begin
		default:
			return (*Evictor).evict
		}
	case ends:
	}
	return nil
}

// stay returns what is to be done about a machine that its group keeps.
func stay(t task, ours bool) func(*Evictor, context.Context, task) error {
	switch {
	case t.order.Action == "" && t.node.Mark != "":
		return (*Evictor).restore
	case t.order.Action == "":
	case !ours, t.mark.Order != of(t.order):
		return (*Evictor).begin
	case t.order.Action == notice.Drain && t.mark.Released.IsZero():
		return (*Evictor).evict
	}
	return nil
}

type fate int

const (
	stays fate = iota
	// waits for its hooks.
	waits
	// ends, and nobody can delay that.
	ends
)

// stateOf reads a lifecycle state. A machine in Terminating has not come to its hooks yet, for a second, and one in
// Terminating:Proceed has left them.
func stateOf(m Machine) fate {
	switch m.State {
	case "Terminating:Wait":
		return waits
	case "Terminating", "Terminating:Proceed", "Terminated", "Warmed:Terminating", "Warmed:Terminated":
		return ends
	}
	return stays
}

// each does what is due, for several machines at the same time.
func (e *Evictor) each(ctx context.Context, due []task) error {
	errs := make([]error, len(due))
	free := make(chan struct{}, atOnce)
	var wg sync.WaitGroup
	for i, t := range due {
		wg.Go(func() {
			free <- struct{}{}
			defer func() { <-free }()
			err := t.do(e, ctx, t)
			if err != nil && !errors.Is(err, ErrChanged) { // the next step sees the change
				errs[i] = fmt.Errorf("machine %s of group %s: %w", t.machine.ID, t.machine.Group, err)
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// forget drops what is known of nodes and machines that are gone.
func (e *Evictor) forget(nodes []Node, machines []Machine) {
	told, released := map[string]string{}, map[string]bool{}
	for _, n := range nodes {
		if text, ok := e.told[n.UID]; ok {
			told[n.UID] = text
		}
	}
	for _, m := range machines {
		if e.released[m.ID] && stateOf(m) == waits {
			released[m.ID] = true
		}
	}
	e.told, e.released = told, released
}
