package awsfake

import (
	"fmt"
	"reflect"
	"slices"
	"time"
)

// deletionPause is how long CloudFormation waits before it checks a deletion again.
const deletionPause = 15 * time.Second

// job is a change of a stack in progress: operations, each of which starts once those that it depends on are done.
type job struct {
	queue   []operation
	running []operation
	// sequential means that operations run one after another.
	sequential bool
	// undo are the operations that undo the job, the last first; stale are the deletions left until the end.
	undo  []operation
	stale []operation
	// old is the creation order of the resources that existed before.
	old  []string
	done func()
	// broken is called with the resource of a failed operation.
	broken func(logical string)
	// fails lists the resources of operations that have failed.
	fails []string
}

// operation is one step of a job.
type operation struct {
	verb, logical string
	// after are the resources whose operations must be done first.
	after []string
	// begin prepares the operation; skip means that it changes nothing.
	begin func() (skip bool, err error)
	// do carries it out; if done is false, it has to be called again.
	do func() (done bool, err error)
	// made returns the operation's resource, after begin.
	made func() *cfnMade
}

// ready reports whether an operation may begin.
func (j *job) ready(op operation) bool {
	if j.sequential {
		return len(j.running) == 0
	}
	open := func(other operation) bool {
		return other.logical != op.logical && slices.Contains(op.after, other.logical)
	}
	failed := func(id string) bool { return slices.Contains(op.after, id) }
	return !slices.ContainsFunc(j.queue, open) && !slices.ContainsFunc(j.running, open) && !slices.ContainsFunc(j.fails, failed)
}

// next starts the operations of a job that are ready, and ends the job after the last.
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
		c.setStatus(s, op, begun, "")
		c.account.regional.agenda.after(c.options.Step, func() { c.carryOut(s, j, op, err) })
	}
	if s.job == j && len(j.running) == 0 {
		s.job = nil
		j.done()
	}
}

// carryOut carries out an operation, unless begin has failed with err.
func (c *CloudFormation) carryOut(s *cfnStack, j *job, op operation, err error) {
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
		c.account.regional.agenda.after(deletionPause, func() { c.carryOut(s, j, op, nil) })
		return
	}
	j.running = slices.DeleteFunc(j.running, func(other operation) bool { return other.logical == op.logical && other.verb == op.verb })
	if err == nil {
		c.setStatus(s, op, completed, "")
	} else {
		c.setStatus(s, op, failed, refusal(err).Message)
		j.fails = append(j.fails, op.logical)
		j.broken(op.logical)
	}
	c.next(s, j)
}

// dependencyTries is how often CloudFormation tries to delete a resource on which another depends; with the pause
// between them, five minutes.
const dependencyTries = 20

// patient reports whether an operation that was refused with this code is tried again.
func (m *cfnMade) patient(code string) bool {
	if code == "DependencyViolation" {
		m.tries++
		return m.tries < dependencyTries
	}
	// "This can cause your stack to report being in UPDATE_IN_PROGRESS … for long periods of time" (AWS::EC2::Volume).
	return code == "PriorRequestNotComplete" || code == "IncorrectModificationState" || code == "VolumeModificationRateExceeded"
}

// cancel ends a job's running operations because another one has failed.
func (c *CloudFormation) cancel(s *cfnStack, j *job) {
	for _, op := range j.running {
		what := map[string]string{verbCreate: "Resource creation cancelled", verbUpdate: "Resource update cancelled"}[op.verb]
		c.setStatus(s, op, failed, what)
		j.fails = append(j.fails, op.logical)
	}
	j.running = nil
}

// setStatus sets a resource's state and adds an event.
func (c *CloudFormation) setStatus(s *cfnStack, op operation, progress, reason string) {
	made := op.made()
	made.status, made.reason, made.updated = op.verb+progress, reason, c.now()
	c.note(s, cfnEvent{logical: made.logical, physical: made.physical, kind: made.kind, status: made.status, reason: reason})
}

func (c *CloudFormation) start(s *cfnStack, j *job) {
	s.job = j
	c.account.regional.agenda.after(0, func() { c.next(s, j) })
}

// liveScope returns the scope of functions while a stack changes: its resources in their current state.
func liveScope(s *cfnStack, n *stackState) *scope {
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

// execute changes a stack as a change set says.
func (c *CloudFormation) execute(s *cfnStack, set *changeSet) {
	verb, was := set.kind, s.stackState
	next := set.next
	if next.resources = was.resources; next.resources == nil {
		next.resources = map[string]*cfnMade{}
	}
	next.outputs = was.outputs
	s.stackState = next
	if verb == verbUpdate {
		s.times.updated = c.now()
	}
	s.set(c, verb+begun, "User Initiated")
	sc := liveScope(s, &next)
	order, err := next.order(sc)
	j := &job{old: creationOrder(s.resources)}
	j.broken = func(string) { c.rollBack(s, j, verb, was) }
	j.done = func() { c.finish(s, j, verb, was) }
	if err != nil {
		panic(fmt.Sprintf("a change set that was compared has no order: %v", err))
	}
	for _, id := range order {
		j.queue = append(j.queue, c.ensure(s, j, sc, id))
	}
	for _, id := range j.old {
		if !slices.Contains(order, id) {
			made := s.resources[id]
			j.stale = append(j.stale, c.deletion(s, made, func() { delete(s.resources, id) }, made.keeps(false)))
		}
	}
	c.start(s, j)
}

// finish ends a successful job: it evaluates the outputs and then deletes stale resources.
func (c *CloudFormation) finish(s *cfnStack, j *job, verb string, was stackState) {
	outputs, err := s.evaluateOutputs(liveScope(s, &s.stackState))
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
	// A resource is deleted before those that it depended on.
	slices.SortStableFunc(j.stale, func(a, b operation) int { return slices.Index(j.old, b.logical) - slices.Index(j.old, a.logical) })
	c.cleanUp(s, j, verbUpdate)
}

// cleanUp deletes the resources that an update has replaced or removed. A resource that cannot be deleted is
// abandoned, as by CloudFormation after three tries.
func (c *CloudFormation) cleanUp(s *cfnStack, j *job, prefix string) {
	s.set(c, prefix+stateCleanup, "")
	last := &job{queue: j.stale, sequential: true, done: func() { s.set(c, prefix+completed, "") }}
	last.broken = func(string) {}
	c.start(s, last)
}

func (s *cfnStack) evaluateOutputs(sc *scope) ([]stackOutput, error) {
	var list []stackOutput
	for _, name := range sortedKeys(s.template.outputs) {
		o := s.template.outputs[name]
		value, err := sc.text(o.Value, "Output")
		if err != nil {
			return nil, err
		}
		list = append(list, stackOutput{name, value, o.Description})
	}
	return list, nil
}

// ensure returns the operation that creates, replaces or updates a resource, or leaves it alone if it is unchanged.
func (c *CloudFormation) ensure(s *cfnStack, j *job, sc *scope, id string) operation {
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
			j.undo = append(j.undo, c.deletion(s, made, func() { delete(s.resources, id) }, made.keeps(true)))
			return true, nil
		}
		j.undo = append(j.undo, c.deletion(s, made, func() { s.resources[id] = before }, false))
		j.stale = append(j.stale, c.deletion(s, before, func() {}, declared.UpdateReplace == retain))
		return true, nil
	}
	return op
}

// keeps reports whether a resource is retained; created means that the failed operation has created it.
func (m *cfnMade) keeps(created bool) bool {
	return m.deletion == retain || m.deletion == retainExceptOnCreate && !created
}
