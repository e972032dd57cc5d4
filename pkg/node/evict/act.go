package evict

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/node/notice"
)

// maxNamed bounds the pods that an Event names. The API server refuses a message of more than 1024 characters.
const (
	maxNamed   = 5
	maxMessage = 1000
)

// begin marks and cordons a node. The hook's time is restarted once, before: then it ends no earlier than the mark says,
// however long ago the machine came to its hook, and there need be no other heartbeat.
func (e *Evictor) begin(ctx context.Context, t task) error {
	now := e.Now().UTC().Truncate(time.Second)
	m := mark{Instance: t.machine.ID, Since: now, Until: now.Add(unheld), Cordoned: !t.node.Unschedulable || t.mark.Cordoned}
	if stateOf(t.machine) == stays {
		return e.beginNotice(ctx, t, m)
	}
	t.node.Exclude, m.Excluded = exclude(t)
	hold, err := e.Machines.Hold(ctx, t.machine)
	if err != nil {
		return err
	}
	if m.Held = hold > 0; m.Held {
		m.Until = now.Add(hold - min(spare, hold/2))
	}
	t.node.Mark, t.node.Unschedulable = m.String(), true
	if err := e.Cluster.Change(ctx, t.node); err != nil {
		return err
	}
	e.Log.Info("evicting the pods of a machine that ends", "node", t.node.Name, "instance", t.machine.ID, "group", t.machine.Group, "held", m.Held, "until", m.Until)
	e.tell(ctx, t.node, m, Event{Reason: "Evicting", Message: fmt.Sprintf("machine %s of group %s ends (%s): its pods are evicted until %s",
		t.machine.ID, t.machine.Group, t.machine.State, m.Until.Format(timeForm))})
	return nil
}

// beginNotice marks and cordons the node of a machine that its group keeps, for a notice of EC2.
func (e *Evictor) beginNotice(ctx context.Context, t task, m mark) error {
	m.Order, m.Until = of(t.order), t.order.Until
	m.Excluded = t.mark.Excluded
	if t.order.Action == notice.Drain {
		t.node.Exclude, m.Excluded = exclude(t)
	}
	t.node.Mark, t.node.Unschedulable = m.String(), true
	if err := e.Cluster.Change(ctx, t.node); err != nil {
		return err
	}
	e.Log.Info("EC2 has given notice of a machine", "node", t.node.Name, "instance", t.machine.ID, "group", t.machine.Group, "order", m.Order, "until", m.Until)
	event := Event{Reason: "Cordoned", Message: fmt.Sprintf("EC2 has given notice of machine %s (%s): no new pods come to it", t.machine.ID, t.order.Notice)}
	if t.order.Action == notice.Drain {
		event = Event{Reason: "Evicting", Message: fmt.Sprintf("EC2 has given notice of machine %s (%s): its pods are evicted until %s", t.machine.ID, t.order.Notice, m.Until.Format(timeForm))}
	}
	e.tell(ctx, t.node, m, event)
	return nil
}

// exclude returns the ExcludeLabel of a node that its pods leave, and whether it is ours to take back. What others have written stays,
// but for the word that says that load balancers keep the node.
func exclude(t task) (label *string, ours bool) {
	if t.node.Exclude != nil {
		if out, err := strconv.ParseBool(*t.node.Exclude); err != nil || out {
			return t.node.Exclude, t.mark.Excluded
		}
	}
	return new(string), true
}

// timeForm is how a time is written for people.
const timeForm = time.RFC3339

// stuck is a pod that has not left.
type stuck struct {
	pod Pod
	why string
	// refused: the API server does not let it be evicted. Else it is ending.
	refused bool
}

func (s stuck) String() string { return s.pod.String() + ": " + s.why }

// evict evicts the pods that have not left, and lets the machine end if there are none, or if its time is over. A machine
// that is lost keeps nothing alive: its pods are evicted once, so that others are made, and it is not held for them.
func (e *Evictor) evict(ctx context.Context, t task) error {
	if !t.node.Unschedulable { // somebody has uncordoned it, and pods may have come
		t.node.Unschedulable = true
		return e.Cluster.Change(ctx, t.node)
	}
	over := t.node.Lost || !e.Now().Before(t.mark.Until)
	left, err := e.round(ctx, t.node)
	if err != nil && !over {
		return err
	}
	if len(left) > 0 && !over {
		e.report(ctx, t, left)
		return nil
	}
	if t.mark.Held && !over && e.Now().Before(t.mark.Since.Add(e.Linger)) {
		return nil // its pods have left before load balancers can have left it out
	}
	return errors.Join(err, e.end(ctx, t, left, err))
}

// round asks once for the eviction of every pod that should leave, and returns those that are still there.
func (e *Evictor) round(ctx context.Context, n Node) ([]stuck, error) {
	pods, err := e.Cluster.Pods(ctx, n.Name)
	if err != nil {
		return nil, err
	}
	var left []stuck
	for _, p := range pods {
		if !p.moves() {
			continue
		}
		if p.Ending {
			left = append(left, stuck{p, "it is ending", false})
			continue
		}
		err := e.Cluster.Evict(ctx, p)
		var blocked *BlockedError
		switch {
		case errors.As(err, &blocked):
			left = append(left, stuck{p, blocked.Why, true})
		case err != nil:
			return left, err
		default:
			left = append(left, stuck{p, "it is ending", false})
			if p.Controller == "" {
				e.Log.Warn("a pod that nothing makes anew is evicted", "node", n.Name, "pod", p.String())
			}
		}
	}
	slices.SortFunc(left, func(a, b stuck) int { return strings.Compare(a.pod.String(), b.pod.String()) })
	return left, nil
}

// report tells which pods are refused, when that has changed.
func (e *Evictor) report(ctx context.Context, t task, left []stuck) {
	refused := slices.DeleteFunc(slices.Clone(left), func(s stuck) bool { return !s.refused })
	text := list(refused)
	if !e.new(t.node, text) || len(refused) == 0 {
		return
	}
	for _, s := range refused {
		e.Log.Warn("a pod cannot be evicted now, which is tried again", "node", t.node.Name, "pod", s.pod.String(), "why", s.why, "until", t.mark.Until)
	}
	e.tell(ctx, t.node, t.mark, Event{Reason: "EvictionBlocked", Warning: true,
		Message: fmt.Sprintf("%d pods cannot be evicted now, which is tried until %s: %s", len(refused), t.mark.Until.Format(timeForm), text)})
}

// new reports whether something else was last said of the node, and remembers what is said now.
func (e *Evictor) new(n Node, text string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	said := e.told[n.UID]
	e.told[n.UID] = text
	return said != text
}

// end reports the result, and lets the machine end. What happens to pods that are left is the kubelet's graceful shutdown's.
func (e *Evictor) end(ctx context.Context, t task, left []stuck, unknown error) error {
	event := Event{Reason: ReasonEvicted, Message: fmt.Sprintf("all pods have left machine %s", t.machine.ID)}
	switch {
	case unknown != nil:
		event = Event{Reason: ReasonIncomplete, Warning: true, Message: fmt.Sprintf("machine %s ends, and which pods are left is unknown: %v", t.machine.ID, unknown)}
	case len(left) > 0:
		why := "in its time"
		if t.node.Lost {
			why = "since nothing is heard of it"
		}
		verb := "ends with"
		if t.mark.Order != "" { // EC2 ends it, or stops it for a while
			verb = "still has"
		}
		event = Event{Reason: ReasonIncomplete, Warning: true, Message: fmt.Sprintf("machine %s %s %d pods that have not left %s: %s", t.machine.ID, verb, len(left), why, list(left))}
	}
	log := e.Log.Info
	if event.Warning {
		log = e.Log.Warn
	}
	log(event.Message, "node", t.node.Name, "group", t.machine.Group)
	for _, s := range left {
		e.Log.Warn("a pod ends with its machine", "node", t.node.Name, "pod", s.pod.String(), "why", s.why)
	}
	e.tell(ctx, t.node, t.mark, event)
	if t.mark.Held {
		if _, err := e.Machines.Release(ctx, t.machine); err != nil {
			return err
		}
	}
	t.mark.Released = e.Now().UTC().Truncate(time.Second)
	t.node.Mark = t.mark.String()
	return e.Cluster.Change(ctx, t.node)
}

// pass lets a machine end from which nothing can be moved: it is no node, or the whole cluster ends.
func (e *Evictor) pass(ctx context.Context, t task) error {
	held, err := e.Machines.Release(ctx, t.machine)
	if err != nil {
		return err
	}
	if held {
		e.Log.Info("a machine ends without an eviction: it is no node, or the cluster ends", "instance", t.machine.ID, "group", t.machine.Group, "node", t.node.Name)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.released[t.machine.ID] = true
	return nil
}

// restore undoes what we did to a node whose machine stays, and leaves what others did.
func (e *Evictor) restore(ctx context.Context, t task) error {
	if t.mark.Cordoned {
		t.node.Unschedulable = false
	}
	if t.mark.Excluded {
		t.node.Exclude = nil
	}
	t.node.Mark = ""
	if err := e.Cluster.Change(ctx, t.node); err != nil {
		return err
	}
	why := "it is " + t.machine.State
	if t.mark.Order != "" {
		why = "there is no notice any more that asks for anything"
	}
	e.Log.Info("a machine stays after all", "node", t.node.Name, "instance", t.machine.ID, "why", why, "uncordoned", t.mark.Cordoned)
	e.tell(ctx, t.node, t.mark, Event{Reason: "EvictionCancelled", Message: fmt.Sprintf("machine %s stays: %s", t.machine.ID, why)})
	return nil
}

// tell writes an Event. Its ID is of the mark's beginning, so that every master writes the same one. The log has all that it
// says, and so a failure delays nothing.
func (e *Evictor) tell(ctx context.Context, n Node, m mark, event Event) {
	event.ID = fmt.Sprintf("%s-%x", strings.ToLower(event.Reason), m.Since.Unix())
	if len(event.Message) > maxMessage {
		event.Message = strings.ToValidUTF8(event.Message[:maxMessage], "") + "…"
	}
	if err := e.Cluster.Tell(ctx, n, event); err != nil {
		e.Log.Warn("an event of a node is not written", "node", n.Name, "event", event.Reason, "error", err)
	}
}

// list names pods with their reasons, as far as an Event has room.
func list(left []stuck) string {
	var texts []string
	for i, s := range left {
		if i == maxNamed {
			texts = append(texts, fmt.Sprintf("and %d more, which are in the controller's log", len(left)-maxNamed))
			break
		}
		texts = append(texts, s.String())
	}
	return strings.Join(texts, "; ")
}
