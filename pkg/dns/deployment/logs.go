package deployment

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatch"
	cwtypes "github.com/aws/aws-sdk-go-v2/service/cloudwatch/types"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatchlogs"

	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/doctor"
	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/reconcile"
)

// How far back to look for the newest reconcile: first where it should be, then as far as it is of interest.
const (
	recent = 15 * time.Minute
	oldest = 24 * time.Hour
	// maxPages bounds how much of a log is read; a page is up to 1 MB or 10,000 events.
	maxPages = 100
)

// logsOf reads the log group and the newest reconcile of each cluster.
func (r *Reader) logsOf(ctx context.Context, f doctor.Known[doctor.Function]) (l doctor.Logs) {
	if f.Err != nil {
		l.Group.Err, l.Runs.Err = unread("the log group", "the function"), unread("the last reconcile", "the function")
		return l
	}
	l.Group = known(r.logGroup(ctx, f.Value.LogGroup))
	for _, back := range []time.Duration{recent, oldest} {
		l.Runs = known(r.runs(ctx, f.Value.LogGroup, r.now().Add(-back)))
		if l.Runs.Err != nil || len(l.Runs.Value) > 0 {
			break
		}
	}
	return l
}

func (r *Reader) logGroup(ctx context.Context, name string) (doctor.LogGroup, error) {
	pages := cloudwatchlogs.NewDescribeLogGroupsPaginator(r.logs, &cloudwatchlogs.DescribeLogGroupsInput{LogGroupNamePrefix: &name})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return doctor.LogGroup{}, err
		}
		for _, g := range page.LogGroups {
			if text(g.LogGroupName) == name {
				return doctor.LogGroup{Name: name, Retention: int(aws.ToInt32(g.RetentionInDays))}, nil
			}
		}
	}
	return doctor.LogGroup{}, fmt.Errorf("log group %s: %w", name, doctor.ErrNotThere)
}

// line is a line of the function's log, as pkg/dns/function writes it.
type line struct {
	Time    time.Time         `json:"time"`
	Level   string            `json:"level"`
	Msg     string            `json:"msg"`
	Cluster string            `json:"cluster"` // of a failure
	Error   string            `json:"error"`
	Report  *reconcile.Report `json:"report"`
}

// runs returns the newest reconcile of each cluster since a time. A failed reconcile has two lines: its report, and its
// error.
func (r *Reader) runs(ctx context.Context, group string, since time.Time) ([]doctor.Run, error) {
	pages := cloudwatchlogs.NewFilterLogEventsPaginator(r.logs, &cloudwatchlogs.FilterLogEventsInput{
		LogGroupName: &group, StartTime: aws.Int64(since.UnixMilli()), FilterPattern: aws.String(`{ $.msg = "sync" }`),
	})
	var order []string
	newest := map[string]doctor.Run{}
	for n := 0; pages.HasMorePages() && n < maxPages; n++ {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, err
		}
		for _, e := range page.Events {
			run, ok := runOf(text(e.Message))
			if !ok {
				continue
			}
			old, seen := newest[run.Cluster]
			if !seen {
				order = append(order, run.Cluster)
			}
			if run.At.Before(old.At) {
				continue
			}
			if run.Err != "" { // the report is the line before
				old.At, old.Cluster, old.Err = run.At, run.Cluster, run.Err
				run = old
			}
			newest[run.Cluster] = run
		}
	}
	var list []doctor.Run
	for _, c := range order {
		list = append(list, newest[c])
	}
	return list, nil
}

// runOf parses a line; most lines of a log group are Lambda's own.
func runOf(message string) (run doctor.Run, ok bool) {
	var l line
	if json.Unmarshal([]byte(message), &l) != nil || l.Msg != "sync" {
		return run, false
	}
	if l.Report == nil {
		return doctor.Run{Cluster: l.Cluster, At: l.Time, Err: l.Error}, l.Cluster != "" && l.Error != ""
	}
	run = doctor.Run{Cluster: l.Report.Cluster, At: l.Time}
	switch {
	case l.Report.Changed:
		run.Changed = l.Time
	case l.Report.AgeSeconds > 0:
		run.Changed = l.Time.Add(-time.Duration(l.Report.AgeSeconds * float64(time.Second)))
	}
	for _, p := range l.Report.Problems {
		run.Problems = append(run.Problems, p.String())
	}
	return run, true
}

// alarms reads the alarms on the template's metrics, whoever created them.
func (r *Reader) alarms(ctx context.Context, f *doctor.Facts) (list []doctor.Alarm, err error) {
	if f.Function.Err != nil {
		return nil, unread("the alarms", "the function")
	}
	expected, err := doctor.Expect(r.template, *f)
	if err != nil {
		return nil, err
	}
	for _, m := range expected.Alarms {
		out, err := r.metrics.DescribeAlarmsForMetric(ctx, &cloudwatch.DescribeAlarmsForMetricInput{
			Namespace: &m.Namespace, MetricName: &m.Metric, Dimensions: []cwtypes.Dimension{{Name: &m.Dimension, Value: &m.Value}},
		})
		if err != nil {
			return nil, err
		}
		for _, a := range out.MetricAlarms {
			list = append(list, doctor.Alarm{Metric: m.Metric, Name: text(a.AlarmName), State: string(a.StateValue), Reason: text(a.StateReason),
				Actions: len(a.AlarmActions), Enabled: aws.ToBool(a.ActionsEnabled)})
		}
	}
	return list, nil
}
