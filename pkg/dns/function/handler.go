package function

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strconv"
	"sync"
	"time"

	"github.com/aws/aws-lambda-go/events"

	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/reconcile"
)

// syncer is the reconcile (reconcile.Syncer). An error means that the records may be outdated.
type syncer interface {
	Sync(ctx context.Context, cluster string, triggers ...reconcile.Event) (reconcile.Report, error)
}

// reminder sends a message that names the cluster and is delivered after the delay, or a little later.
type reminder interface {
	Remind(ctx context.Context, cluster string, after time.Duration) error
}

// Handler handles invocations.
type Handler struct {
	scope  Scope
	syncer syncer
	// reminder may be nil: then no reminders are sent.
	reminder reminder
	now      func() time.Time
	log      *slog.Logger
}

// answer is the response; for a batch of the queue Lambda reads only the failures.
type answer struct {
	Failures []events.SQSBatchItemFailure `json:"batchItemFailures"`
	Reports  []reconcile.Report           `json:"reports,omitempty"`
}

// job is the part of an invocation about one cluster.
type job struct {
	cluster  string
	triggers []reconcile.Event
	// message is the id of the message to fail if the job fails, and received how often it was received before.
	message  string
	received int

	report reconcile.Report
	err    error
}

// Invoke handles a batch of the queue, or a single event from EventBridge, a schedule or a person.
//
// Of a batch it reports, for every cluster whose records may be outdated, one failed message: the one that was received
// most often. One is enough for a retry, since all of them select the same cluster, and that one is the first to reach
// the dead-letter queue, which has the alarm. A single event fails as a whole.
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

// jobs groups an invocation's events by cluster.
func (h *Handler) jobs(ctx context.Context, payload []byte) (jobs []*job, batch bool) {
	by := map[string]*job{}
	add := func(m events.SQSMessage, body []byte) {
		clusters, triggers, err := h.scope.parse(body)
		if err != nil {
			h.log.WarnContext(ctx, "event", "message", m.MessageId, "error", err, "clusters", clusters)
		}
		for _, c := range clusters {
			if by[c] == nil {
				by[c] = &job{cluster: c, received: -1}
				jobs = append(jobs, by[c])
			}
			by[c].add(m, triggers)
		}
	}
	var q events.SQSEvent
	if json.Unmarshal(payload, &q) != nil || q.Records == nil {
		add(events.SQSMessage{}, payload)
		return jobs, false
	}
	for _, m := range q.Records {
		add(m, []byte(m.Body))
	}
	return jobs, true
}

func (j *job) add(m events.SQSMessage, triggers []reconcile.Event) {
	j.triggers = append(j.triggers, triggers...)
	// A missing attribute counts as 0.
	received, _ := strconv.Atoi(m.Attributes["ApproximateReceiveCount"])
	if received > j.received {
		j.message, j.received = m.MessageId, received
	}
}

// run reconciles the clusters of all jobs in parallel: one that waits must not use up the time of the others.
func (h *Handler) run(ctx context.Context, jobs []*job) {
	var wait sync.WaitGroup
	for _, j := range jobs {
		wait.Go(func() {
			j.report, j.err = h.syncer.Sync(ctx, j.cluster, j.triggers...)
			h.log.InfoContext(ctx, "sync", "report", j.report, "events", len(j.triggers))
			h.remind(ctx, j.report)
		})
	}
	wait.Wait()
}

// remind sends a reminder for the time when a hook is due. If that fails, the schedule does the same later.
func (h *Handler) remind(ctx context.Context, r reconcile.Report) {
	if r.CallAgainAt.IsZero() || h.reminder == nil {
		return
	}
	if err := h.reminder.Remind(ctx, r.Cluster, r.CallAgainAt.Sub(h.now())); err != nil {
		h.log.WarnContext(ctx, "reminder: the schedule will finish the hooks instead", "cluster", r.Cluster, "error", err)
	}
}
