package awsfake

import (
	"fmt"
	"slices"
	"strings"
)

// revert returns the operation that undoes an update.
func (c *CloudFormation) revert(s *cfnStack, made, before *cfnMade) operation {
	return operation{
		verb: verbUpdate, logical: made.logical, made: func() *cfnMade { return before },
		begin: func() (bool, error) { return false, nil },
		do: func() (bool, error) {
			before.attributes = made.attributes
			err := resourceKinds()[before.kind].update(&provision{cf: c, stack: s, cfnMade: before, before: made})
			s.resources[made.logical] = before
			return true, err
		},
	}
}

// deletion returns the operation that deletes a resource, or with keep retains it.
func (c *CloudFormation) deletion(s *cfnStack, made *cfnMade, gone func(), keep bool) operation {
	op := operation{verb: verbDelete, logical: made.logical, made: func() *cfnMade { return made }}
	op.begin = func() (bool, error) {
		if keep {
			made.status = "DELETE_SKIPPED"
			c.note(s, cfnEvent{logical: made.logical, physical: made.physical, kind: made.kind, status: made.status})
			gone()
		}
		return keep, nil
	}
	op.do = func() (bool, error) {
		done, err := resourceKinds()[made.kind].remove(&provision{cf: c, stack: s, cfnMade: made})
		if done && err == nil {
			gone()
		}
		return done, err
	}
	return op
}

// rollBack undoes a job's operations after one has failed.
func (c *CloudFormation) rollBack(s *cfnStack, j *job, verb string, was stackState) {
	c.cancel(s, j)
	prefix, what := stateRollback, "create"
	if verb == verbUpdate {
		prefix, what = stateUpdateRollback, "update"
	}
	s.set(c, prefix+begun, fmt.Sprintf("The following resource(s) failed to %s: [%s]. ", what, strings.Join(j.fails, ", ")))
	back := &job{sequential: true, broken: func(string) {}}
	for _, op := range slices.Backward(j.undo) {
		if verb == verbUpdate && op.verb == verbDelete {
			back.stale = append(back.stale, op)
			continue
		}
		back.queue = append(back.queue, op)
	}
	if verb == verbUpdate {
		resources := s.resources
		s.stackState = was
		s.resources = resources
		// A replaced resource is back as soon as the rollback begins; its replacement is deleted at the end.
		for _, op := range back.stale {
			if made := op.made(); j.replaced(made) != nil {
				s.resources[made.logical] = j.replaced(made)
			}
		}
	}
	back.done = func() {
		switch {
		case len(back.fails) > 0:
			s.set(c, prefix+failed, fmt.Sprintf("The following resource(s) failed to delete: [%s]. ", strings.Join(back.fails, ", ")))
		case verb == verbUpdate:
			c.cleanUp(s, back, prefix)
		default:
			s.set(c, prefix+completed, "")
		}
	}
	c.start(s, back)
}

// replaced returns the resource that made has replaced; nil for none.
func (j *job) replaced(made *cfnMade) *cfnMade {
	for _, op := range j.stale {
		if old := op.made(); old.logical == made.logical && old != made {
			return old
		}
	}
	return nil
}

// creationOrder returns the resources in the order of their dependencies.
func creationOrder(resources map[string]*cfnMade) []string {
	var order []string
	seen := map[string]bool{}
	var visit func(id string)
	visit = func(id string) {
		made := resources[id]
		if made == nil || seen[id] {
			return
		}
		seen[id] = true
		for _, other := range made.needs {
			visit(other)
		}
		order = append(order, id)
	}
	for _, id := range sortedKeys(resources) {
		visit(id)
	}
	return order
}

// startDeletion deletes a stack's resources in the reverse order of their dependencies.
func (c *CloudFormation) startDeletion(s *cfnStack) {
	s.set(c, verbDelete+begun, "User Initiated")
	j := &job{broken: func(string) {}}
	j.done = func() {
		if len(j.fails) > 0 {
			s.set(c, verbDelete+failed, fmt.Sprintf("The following resource(s) failed to delete: [%s]. ", strings.Join(j.fails, ", ")))
			return
		}
		s.times.deleted = c.now()
		s.sets = nil
		s.set(c, verbDelete+completed, "")
	}
	for _, id := range slices.Backward(creationOrder(s.resources)) {
		made := s.resources[id]
		op := c.deletion(s, made, func() { delete(s.resources, id) }, made.keeps(false))
		for other, needs := range s.resources {
			if slices.Contains(needs.needs, id) {
				op.after = append(op.after, other)
			}
		}
		j.queue = append(j.queue, op)
	}
	c.start(s, j)
}
