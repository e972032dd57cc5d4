package doctor

import "time"

func (l *List) queue(f Facts, w Wanted) {
	q, ok := f.Queue.get(l, "queue")
	if !ok {
		return
	}
	limit, want := f.Function.Value.Timeout, w.Shipped.Queue
	needed := 6*limit + w.Shipped.Mapping.Window
	switch {
	case q.Visibility < limit:
		l.fail("queue.visibility", deployAgain, "%s, less than the function's timeout of %s: a message is given to a second call while the first still works on it", q.Visibility, limit)
	case q.Visibility < needed:
		l.warn("queue.visibility", deployAgain, "%s: Lambda asks for six times the function's timeout and the window, %s", q.Visibility, needed)
	default:
		l.ok("queue.visibility", "%s for a timeout of %s", q.Visibility, limit)
	}
	same(l, "queue.retention", q.Retention, want.Retention)
	switch {
	case q.DeadLetterARN == "":
		l.fail("queue.redrive", deployAgain, "there is no dead-letter queue: messages that always fail are retried forever, without an alarm")
	case q.MaxReceive != want.MaxReceive:
		l.warn("queue.redrive", deployAgain, "after %d tries, where the template has %d", q.MaxReceive, want.MaxReceive)
	default:
		l.ok("queue.redrive", "after %d tries to %s", q.MaxReceive, q.DeadLetterARN)
	}
	if !q.Encrypted {
		l.warn("queue.encryption", deployAgain, "messages are not encrypted at rest")
	} else {
		l.ok("queue.encryption", "messages are encrypted at rest")
	}
	if q.Visible > w.Shipped.Mapping.Batch {
		l.warn("queue.messages", "see queue.age and mapping.state", "%d wait, more than one batch", q.Visible)
	} else {
		l.ok("queue.messages", "%d wait, %d are with the function, %d are due later", q.Visible, q.Flying, q.Later)
	}
	l.age(q, w.Shipped.MaxAge)
}

func (l *List) age(q Queue, late time.Duration) {
	oldest, ok := q.Oldest.get(l, "queue.age")
	switch {
	case !ok:
	case oldest == nil:
		l.ok("queue.age", "CloudWatch has no data of the last minutes: the queue is idle")
	case *oldest > late:
		l.fail("queue.age", "see mapping.state, function.concurrency and the function's log", "the oldest message has waited for %s: nothing reads the queue", *oldest)
	default:
		l.ok("queue.age", "the oldest message of the last minutes had waited for %s", *oldest)
	}
}

func (l *List) dead(f Facts, w Wanted) {
	q, ok := f.Dead.get(l, "dead-letters")
	switch n := q.Visible + q.Flying + q.Later; {
	case !ok:
	case n > 0:
		l.fail("dead-letters.messages", "see why in the function's log; when that is fixed: aws sqs start-message-move-task --source-arn "+q.ARN,
			"%d: their clusters could not be reconciled five times over", n)
	default:
		l.ok("dead-letters.messages", "none")
	}
	if ok {
		same(l, "dead-letters.retention", q.Retention, w.Shipped.DeadLetters.Retention)
	}
}
