package awsfake

import (
	"fmt"
	"slices"
	"strings"
)

// revert takes an update back.
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

// unmake deletes a resource, or leaves it behind.
func (c *CloudFormation) unmake(s *cfnStack, made *cfnMade, gone func(), keep bool) operation {
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

// rollBack takes back what a job has done, once an operation has failed.
func (c *CloudFormation) rollBack(s *cfnStack, j *job, verb string, was settled) {
	c.cancel(s, j)
	prefix, what := stateRollback, "create"
	if verb == verbUpdate {
		prefix, what = stateUpdateRollback, "update"
	}
	s.set(c, prefix+begun, fmt.Sprintf("The following resource(s) failed to %s: [%s]. ", what, strings.Join(j.fails, ", ")))
	back := &job{inTurn: true, broken: func(string) {}}
	for _, op := range slices.Backward(j.undo) {
		if verb == verbUpdate && op.verb == verbDelete {
			back.stale = append(back.stale, op)
			continue
		}
		back.queue = append(back.queue, op)
	}
	if verb == verbUpdate {
		resources := s.resources
		s.settled = was
		s.resources = resources
		// What was replaced is what it was before, as soon as the rollback begins; the new one goes at its end.
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

// replaced is what stood in a resource's place before it.
func (j *job) replaced(made *cfnMade) *cfnMade {
	for _, op := range j.stale {
		if old := op.made(); old.logical == made.logical && old != made {
			return old
		}
	}
	return nil
}

// goneOrder lists resources so that each comes after what it needs.
func goneOrder(resources map[string]*cfnMade) []string {
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

// dismantle deletes a stack's resources, the last made first.
func (c *CloudFormation) dismantle(s *cfnStack, keep []string) {
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
	for _, id := range slices.Backward(goneOrder(s.resources)) {
		made := s.resources[id]
		op := c.unmake(s, made, func() { delete(s.resources, id) }, made.keeps(false) || slices.Contains(keep, id))
		for other, needs := range s.resources {
			if slices.Contains(needs.needs, id) {
				op.after = append(op.after, other)
			}
		}
		j.queue = append(j.queue, op)
	}
	c.start(s, j)
}
