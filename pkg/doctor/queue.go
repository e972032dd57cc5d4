package doctor

import (
	"time"
)

// late is how old the oldest message, and the last reconcile, may be: five sweeps; the template's alarm has the same.
const late = 5 * time.Minute

func (l *List) queue(f Facts) {
	q, ok := f.Queue.get(l, "queue")
	if !ok {
		return
	}
	limit := f.Function.Value.Size.Timeout
	switch {
	case q.Visibility < limit:
		l.fail("queue.visibility", deployAgain, "%s, less than the function's timeout of %s: a message is given to a second call while the first still works on it", q.Visibility, limit)
	case q.Visibility < 6*limit+window:
		l.warn("queue.visibility", deployAgain, "%s: Lambda asks for six times the function's timeout and the window, %s", q.Visibility, 6*limit+window)
	default:
		l.ok("queue.visibility", "%s for a timeout of %s", q.Visibility, limit)
	}
	same(l, "queue.retention", q.Retention, retention)
	switch r := q.Redrive; {
	case r.Target == "":
		l.fail("queue.redrive", deployAgain, "there is no dead-letter queue: what always fails is tried for ever, and no alarm tells")
	case r.Max != maxReceive:
		l.warn("queue.redrive", deployAgain, "after %d tries, where the template has %d", r.Max, maxReceive)
	default:
		l.ok("queue.redrive", "after %d tries to %s", r.Max, r.Target)
	}
	if !q.Encrypted {
		l.warn("queue.encryption", deployAgain, "messages are not encrypted at rest")
	} else {
		l.ok("queue.encryption", "messages are encrypted at rest")
	}
	if q.Visible > batch {
		l.warn("queue.messages", "see queue.age and mapping.state", "%d wait, more than one batch", q.Visible)
	} else {
		l.ok("queue.messages", "%d wait, %d are with the function, %d are due later", q.Visible, q.Flying, q.Later)
	}
	l.age(q)
}

func (l *List) age(q Queue) {
	oldest, ok := q.Oldest.get(l, "queue.age")
	switch {
	case !ok:
	case oldest == nil:
		l.ok("queue.age", "CloudWatch has no figure of the last minutes: the queue is idle")
	case *oldest > late:
		l.fail("queue.age", "see mapping.state, function.concurrency and the function's log", "the oldest message has waited for %s: nothing reads the queue", *oldest)
	default:
		l.ok("queue.age", "the oldest message of the last minutes had waited for %s", *oldest)
	}
}

func (l *List) dead(f Facts) {
	q, ok := f.Dead.get(l, "dead-letters")
	switch n := q.Visible + q.Flying + q.Later; {
	case !ok:
	case n > 0:
		l.fail("dead-letters.messages", "see why in the function's log; when that is mended: aws sqs start-message-move-task --source-arn "+q.ARN,
			"%d: their clusters could not be reconciled five times over", n)
	default:
		l.ok("dead-letters.messages", "none")
	}
	if ok {
		same(l, "dead-letters.retention", q.Retention, deadRetention)
	}
}
