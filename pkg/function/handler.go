package function

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strconv"
	"sync"
	"time"

	"github.com/aws/aws-lambda-go/events"

	"github.com/hardtack/packer-plugin-hardtack/pkg/dnssync"
)

// syncer is the reconcile (dnssync.Syncer). An error means that the records may not be right yet.
type syncer interface {
	Sync(ctx context.Context, cluster string, pokes ...dnssync.Poke) (dnssync.Report, error)
}

// reminder sends a message that names the cluster and arrives after the delay, or a little later.
type reminder interface {
	Remind(ctx context.Context, cluster string, after time.Duration) error
}

// Handler answers invocations.
type Handler struct {
	scope  Scope
	syncer syncer
	// reminder nil: no reminders.
	reminder reminder
	now      func() time.Time
	log      *slog.Logger
}

// answer is what a direct invocation gets; for a queue's batch only the failures matter.
type answer struct {
	Failures []events.SQSBatchItemFailure `json:"batchItemFailures"`
	Reports  []dnssync.Report             `json:"reports,omitempty"`
}

// job is one cluster's share of an invocation.
type job struct {
	cluster string
	pokes   []dnssync.Poke
	// message is the id of the message that stands for all that named the cluster, and received how
	// often it was received already.
	message  string
	received int

	report dnssync.Report
	err    error
}

// Invoke takes a batch of the queue, or one event as EventBridge, a schedule or a person sends it.
//
// Of a batch it returns as failed, for every cluster whose records may not be right, the one message
// that was tried most often: a poke is as good as any other, so one is enough to try again with, and
// the one that was tried most often is the first to reach the dead-letter queue, where the alarm is.
// A single event fails as a whole.
func (h *Handler) Invoke(ctx context.Context, payload []byte) ([]byte, error) {
	jobs, batch := h.jobs(ctx, payload)
	h.run(ctx, jobs)
	out := answer{Failures: []events.SQSBatchItemFailure{}}
	var errs []error
	seen := map[string]bool{}
	for _, j := range jobs {
		if j.err != nil {
			h.log.ErrorContext(ctx, "sync", "cluster", j.cluster, "error", j.err)
			errs = append(errs, j.err)
			if !seen[j.message] {
				out.Failures = append(out.Failures, events.SQSBatchItemFailure{ItemIdentifier: j.message})
				seen[j.message] = true
			}
		}
		if !batch {
			out.Reports = append(out.Reports, j.report)
		}
	}
	if err := errors.Join(errs...); err != nil && !batch {
		return nil, err
	}
	return json.Marshal(out)
}

// jobs sorts an invocation's events by cluster.
func (h *Handler) jobs(ctx context.Context, payload []byte) (jobs []*job, batch bool) {
	by := map[string]*job{}
	add := func(m events.SQSMessage, body []byte) {
		clusters, pokes, err := h.scope.poke(body)
		if err != nil {
			h.log.WarnContext(ctx, "event", "message", m.MessageId, "error", err, "pokes", clusters)
		}
		for _, c := range clusters {
			if by[c] == nil {
				by[c] = &job{cluster: c, received: -1}
				jobs = append(jobs, by[c])
			}
			by[c].add(m, pokes)
		}
	}
	var q events.SQSEvent
	if !bytes.Contains(payload, []byte(`"Records"`)) || json.Unmarshal(payload, &q) != nil || q.Records == nil {
		add(events.SQSMessage{}, payload)
		return jobs, false
	}
	for _, m := range q.Records {
		add(m, []byte(m.Body))
	}
	return jobs, true
}

func (j *job) add(m events.SQSMessage, pokes []dnssync.Poke) {
	j.pokes = append(j.pokes, pokes...)
	// Without the attribute the count is 0, which is less than any.
	received, _ := strconv.Atoi(m.Attributes["ApproximateReceiveCount"])
	if received > j.received {
		j.message, j.received = m.MessageId, received
	}
}

// run reconciles every job's cluster, all at once: one that waits must not use up another's time.
func (h *Handler) run(ctx context.Context, jobs []*job) {
	var wait sync.WaitGroup
	for _, j := range jobs {
		wait.Go(func() {
			j.report, j.err = h.syncer.Sync(ctx, j.cluster, j.pokes...)
			h.log.InfoContext(ctx, "sync", "report", j.report, "pokes", len(j.pokes))
			h.remind(ctx, j.report)
		})
	}
	wait.Wait()
}

// remind asks to be called again when a hook is due. When that does not work the schedule is there.
func (h *Handler) remind(ctx context.Context, r dnssync.Report) {
	if r.Again.IsZero() || h.reminder == nil {
		return
	}
	if err := h.reminder.Remind(ctx, r.Cluster, r.Again.Sub(h.now())); err != nil {
		h.log.WarnContext(ctx, "reminder: the schedule will finish the hooks instead", "cluster", r.Cluster, "error", err)
	}
}
