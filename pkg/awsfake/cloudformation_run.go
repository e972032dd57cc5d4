package awsfake

import (
	"fmt"
	"reflect"
	"slices"
	"time"
)

// deletionPause is how long CloudFormation waits before it looks again whether something has gone.
const deletionPause = 15 * time.Second

// job is what is being done to a stack: operations, each as soon as those are done that it comes after.
type job struct {
	queue   []operation
	running []operation
	// inTurn jobs do one operation after another.
	inTurn bool
	// undo is what takes back what has been done, the last first; stale what is left over when all is done.
	undo  []operation
	stale []operation
	// old is the order in which what was there before was made.
	old  []string
	done func()
	// broken is what becomes of an operation that has failed, by its resource.
	broken func(logical string)
	// fails lists the resources of operations that have failed.
	fails []string
}

// operation is one step of a job.
type operation struct {
	verb, logical string
	// after lists the resources whose operations have to be done before.
	after []string
	// begin prepares it; skip: there is nothing to do.
	begin func() (skip bool, err error)
	// do carries it out; not done: it has to be asked again.
	do func() (done bool, err error)
	// made is the resource that it is about, from begin on.
	made func() *cfnMade
}

// ready reports whether an operation may begin.
func (j *job) ready(op operation) bool {
	if j.inTurn {
		return len(j.running) == 0
	}
	open := func(other operation) bool {
		return other.logical != op.logical && slices.Contains(op.after, other.logical)
	}
	failed := func(id string) bool { return slices.Contains(op.after, id) }
	return !slices.ContainsFunc(j.queue, open) && !slices.ContainsFunc(j.running, open) && !slices.ContainsFunc(j.fails, failed)
}

// next goes on with a stack's job.
func (c *CloudFormation) next(s *cfnStack, j *job) {
	for s.job == j {
		k := slices.IndexFunc(j.queue, j.ready)
		if k < 0 {
			break
		}
		op := j.queue[k]
		j.queue = slices.Delete(slices.Clone(j.queue), k, k+1)
		skip, err := op.begin()
		if skip {
			continue
		}
		j.running = append(j.running, op)
		c.mark(s, op, begun, "")
		c.account.regional.agenda.after(c.options.Step, func() { c.try(s, j, op, err) })
	}
	if s.job == j && len(j.running) == 0 {
		s.job = nil
		j.done()
	}
}

// try carries out an operation that begin had nothing against.
func (c *CloudFormation) try(s *cfnStack, j *job, op operation, err error) {
	if s.job != j {
		return
	}
	done := true
	if err == nil {
		done, err = op.do()
	}
	if err != nil && op.made().patient(refusal(err).Code) {
		done, err = false, nil
	}
	if !done {
		c.account.regional.agenda.after(deletionPause, func() { c.try(s, j, op, nil) })
		return
	}
	j.running = slices.DeleteFunc(j.running, func(other operation) bool { return other.logical == op.logical && other.verb == op.verb })
	if err == nil {
		c.mark(s, op, completed, "")
	} else {
		c.mark(s, op, failed, refusal(err).Message)
		j.fails = append(j.fails, op.logical)
		j.broken(op.logical)
	}
	c.next(s, j)
}

// dependencyTries is how often CloudFormation tries to delete what something else still needs; with the pause
// between them, five minutes.
const dependencyTries = 20

// patient reports whether an operation that was refused with this code is tried again.
func (m *cfnMade) patient(code string) bool {
	if code == "DependencyViolation" {
		m.tries++
		return m.tries < dependencyTries
	}
	return code == "PriorRequestNotComplete"
}

// cancel ends what a job has under way, since something else has failed.
func (c *CloudFormation) cancel(s *cfnStack, j *job) {
	for _, op := range j.running {
		what := map[string]string{verbCreate: "Resource creation cancelled", verbUpdate: "Resource update cancelled"}[op.verb]
		c.mark(s, op, failed, what)
		j.fails = append(j.fails, op.logical)
	}
	j.running = nil
}

// mark sets a resource's state and notes it.
func (c *CloudFormation) mark(s *cfnStack, op operation, progress, reason string) {
	made := op.made()
	made.status, made.reason, made.updated = op.verb+progress, reason, c.now()
	e := cfnEvent{logical: made.logical, physical: made.physical, kind: made.kind, status: made.status, reason: reason}
	if op.verb != verbDelete {
		e.properties = jsonText(made.properties)
	}
	c.note(s, e)
}

func (c *CloudFormation) start(s *cfnStack, j *job) {
	s.job = j
	c.account.regional.agenda.after(0, func() { c.next(s, j) })
}

// live is what functions see while a stack is being changed: the resources as they are.
func live(s *cfnStack, n *settled) *scope {
	return &scope{
		template: n.template, stack: s, values: n.parameters.values, met: map[string]bool{},
		ref: func(id string) (string, bool) {
			made, ok := s.resources[id]
			if !ok {
				return "", false
			}
			return made.physical, made.physical != ""
		},
		attribute: func(id, name string) (string, bool) {
			made, ok := s.resources[id]
			if !ok {
				return "", false
			}
			value, ok := made.attributes[name]
			return value, ok
		},
	}
}

// execute makes a stack what a change set says.
func (c *CloudFormation) execute(s *cfnStack, set *changeSet) {
	verb, was := set.kind, s.settled
	next := set.next
	if next.resources = was.resources; next.resources == nil {
		next.resources = map[string]*cfnMade{}
	}
	next.outputs = was.outputs
	s.settled = next
	if verb == verbUpdate {
		s.times.updated = c.now()
	}
	s.set(c, verb+begun, "User Initiated")
	sc := live(s, &next)
	order, err := next.order(sc)
	j := &job{old: goneOrder(s.resources)}
	j.broken = func(string) { c.rollBack(s, j, verb, was) }
	j.done = func() { c.finish(s, j, verb, was) }
	if err != nil {
		panic(fmt.Sprintf("a change set that was compared has no order: %v", err))
	}
	for _, id := range order {
		j.queue = append(j.queue, c.bring(s, j, sc, id))
	}
	for _, id := range j.old {
		if !slices.Contains(order, id) {
			made := s.resources[id]
			j.stale = append(j.stale, c.unmake(s, made, func() { delete(s.resources, id) }, made.keeps(false)))
		}
	}
	c.start(s, j)
}

// finish ends a job that has worked: outputs, and then what is left over.
func (c *CloudFormation) finish(s *cfnStack, j *job, verb string, was settled) {
	outputs, err := s.evaluateOutputs(live(s, &s.settled))
	if err != nil {
		j.fails = []string{s.name}
		c.rollBack(s, j, verb, was)
		return
	}
	s.outputs = outputs
	if verb == verbCreate {
		s.set(c, verbCreate+completed, "")
		return
	}
	// What needed something else goes before it.
	slices.SortStableFunc(j.stale, func(a, b operation) int { return slices.Index(j.old, b.logical) - slices.Index(j.old, a.logical) })
	c.cleanUp(s, j, verbUpdate)
}

// cleanUp deletes what an update has replaced or left out. What cannot be deleted is left behind, as CloudFormation
// does after it has tried three times.
func (c *CloudFormation) cleanUp(s *cfnStack, j *job, prefix string) {
	s.set(c, prefix+stateCleanup, "")
	last := &job{queue: j.stale, inTurn: true, done: func() { s.set(c, prefix+completed, "") }}
	last.broken = func(string) {}
	c.start(s, last)
}

func (s *cfnStack) evaluateOutputs(sc *scope) ([]stackOutput, error) {
	var list []stackOutput
	for _, name := range sortedKeys(s.template.outputs) {
		o := s.template.outputs[name]
		if o.Condition != "" {
			if met, err := sc.condition(o.Condition); err != nil || !met {
				continue
			}
		}
		value, err := sc.text(o.Value, "Output")
		if err != nil {
			return nil, err
		}
		list = append(list, stackOutput{name, value, o.Description})
	}
	return list, nil
}

// bring makes a resource what the template says: it creates it, replaces it, updates it or leaves it alone.
func (c *CloudFormation) bring(s *cfnStack, j *job, sc *scope, id string) operation {
	declared := sc.template.resources[id]
	kind := resourceKinds()[declared.Type]
	var made, before *cfnMade
	op := operation{verb: verbUpdate, logical: id, after: sc.template.dependencies(id, sc.branch), made: func() *cfnMade { return made }}
	if s.resources[id] == nil {
		op.verb = verbCreate
	}
	replace := false
	op.begin = func() (bool, error) {
		properties, err := sc.properties(id)
		before = s.resources[id]
		fresh := cfnMade{logical: id, kind: declared.Type, properties: properties, needs: sc.template.dependencies(id, sc.branch), deletion: declared.Deletion}
		made = &fresh
		if err != nil || before == nil {
			return false, err
		}
		before.needs, before.deletion = fresh.needs, fresh.deletion
		if reflect.DeepEqual(before.properties, properties) {
			return true, nil
		}
		fresh.physical, fresh.attributes = before.physical, before.attributes
		for _, name := range unionKeys(before.properties, properties) {
			replace = replace || kind.facts().replace[name] && !reflect.DeepEqual(before.properties[name], properties[name])
		}
		if name := kind.facts().name; replace && name != "" && properties[name] != nil && reflect.DeepEqual(properties[name], before.properties[name]) {
			return false, malformed("CloudFormation cannot update a stack when a custom-named resource requires replacing. Rename %s and update the stack again.", properties[name])
		}
		return false, nil
	}
	op.do = func() (bool, error) {
		p := &provision{cf: c, stack: s, cfnMade: made, before: before}
		if before != nil && !replace {
			if err := kind.update(p); err != nil {
				return true, err
			}
			j.undo = append(j.undo, c.revert(s, made, before))
			s.resources[id] = made
			return true, nil
		}
		made.physical, made.attributes = "", map[string]string{}
		if err := kind.create(p); err != nil {
			return true, err
		}
		s.resources[id] = made
		if before == nil {
			j.undo = append(j.undo, c.unmake(s, made, func() { delete(s.resources, id) }, made.keeps(true)))
			return true, nil
		}
		j.undo = append(j.undo, c.unmake(s, made, func() { s.resources[id] = before }, false))
		j.stale = append(j.stale, c.unmake(s, before, func() {}, declared.UpdateReplace == retain))
		return true, nil
	}
	return op
}

// keeps reports whether a resource outlives its stack; created: it was made by the operation that is taken back.
func (m *cfnMade) keeps(created bool) bool {
	return m.deletion == retain || m.deletion == retainExceptOnCreate && !created
}
