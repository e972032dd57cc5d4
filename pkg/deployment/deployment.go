// Package deployment reads from AWS what of the DNS function is deployed, for pkg/doctor to judge.
//
// Its rule: it only reads, and every part for itself: one that cannot be read has its error in its place, and the
// others are read all the same.
package deployment

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	"github.com/aws/aws-sdk-go-v2/service/cloudformation"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatch"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatchlogs"
	"github.com/aws/aws-sdk-go-v2/service/eventbridge"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/aws-sdk-go-v2/service/lambda"
	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/hardtack/packer-plugin-hardtack/pkg/doctor"
)

// Target says which deployment is meant: by its stack, or by the function's name where there is no stack, or where
// the caller may not read it. One of the two is needed.
type Target struct{ Stack, Function string }

// Reader reads deployments.
type Reader struct {
	stacks   *cloudformation.Client
	lambda   *lambda.Client
	queues   *sqs.Client
	rules    *eventbridge.Client
	metrics  *cloudwatch.Client
	logs     *cloudwatchlogs.Client
	iam      *iam.Client
	scaling  *autoscaling.Client
	now      func() time.Time
	settings func(environment map[string]string) (doctor.Settings, error)
}

// New reads with the configuration's credentials in its region. settings reads a function's environment, and
// reports all that is wrong with it, a line each.
func New(c aws.Config, now func() time.Time, settings func(environment map[string]string) (doctor.Settings, error)) *Reader {
	return &Reader{
		stacks: cloudformation.NewFromConfig(c), lambda: lambda.NewFromConfig(c), queues: sqs.NewFromConfig(c), rules: eventbridge.NewFromConfig(c),
		metrics: cloudwatch.NewFromConfig(c), logs: cloudwatchlogs.NewFromConfig(c), iam: iam.NewFromConfig(c), scaling: autoscaling.NewFromConfig(c),
		now: now, settings: settings,
	}
}

// Read reads everything but the records. Each part's error is in its place.
func (r *Reader) Read(ctx context.Context, t Target) doctor.Facts {
	f := doctor.Facts{Records: map[string]doctor.Known[doctor.Records]{}}
	if t.Stack != "" {
		f.Stack = known(r.stack(ctx, t.Stack))
	}
	name := t.Function
	if name == "" {
		name = f.Stack.Value.Resources[doctor.IDFunction].ID
	}
	f.Function = doctor.Known[doctor.Function]{Err: unread("the function", "the stack")}
	if name != "" {
		var stack string
		f.Function.Value, stack, f.Function.Err = r.function(ctx, name)
		f.Function.Err = explain(f.Function.Err)
		if t.Stack == "" && stack != "" {
			f.Stack = known(r.stack(ctx, stack))
		}
	} else if f.Stack.Err == nil {
		f.Function.Err = fmt.Errorf("the stack has no function: %w", doctor.ErrNotThere)
	}
	f.Settings = doctor.Known[doctor.Settings]{Err: unread("the environment", "the function")}
	if f.Function.Err == nil {
		f.Settings.Value, f.Settings.Err = r.settings(f.Function.Value.Environment)
	}
	r.parts(ctx, &f)
	return f
}

// parts reads what depends on the function, and then what depends on its queue.
func (r *Reader) parts(ctx context.Context, f *doctor.Facts) {
	var wait sync.WaitGroup
	part := func(read func(context.Context)) {
		wait.Go(func() {
			short, cancel := share(ctx)
			defer cancel()
			read(short)
		})
	}
	part(func(ctx context.Context) { f.Mappings = r.mappings(ctx, f.Function) })
	part(func(ctx context.Context) { f.Queue, f.Dead = r.twoQueues(ctx, f) })
	part(func(ctx context.Context) { f.Logs = r.logsOf(ctx, f.Function) })
	part(func(ctx context.Context) { f.Groups = r.groups(ctx, f.Settings) })
	wait.Wait()
	part(func(ctx context.Context) { f.Rules = r.rulesOf(ctx, f.Stack, f.Queue) })
	part(func(ctx context.Context) { f.Role = r.role(ctx, f) })
	part(func(ctx context.Context) { f.Alarms = r.alarms(ctx, f) })
	wait.Wait()
}

// share is a third of the time that is left: a service that does not answer must not use up the others'.
func share(ctx context.Context) (context.Context, context.CancelFunc) {
	deadline, limited := ctx.Deadline()
	if !limited {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, time.Until(deadline)/3)
}

// known is a part as it was read.
func known[T any](value T, err error) doctor.Known[T] {
	return doctor.Known[T]{Value: value, Err: explain(err)}
}

// unread is a part that needs another one, which could not be read.
func unread(what, needs string) error {
	return fmt.Errorf("%s: %w without %s", what, doctor.ErrUnread, needs)
}

// text is a string of the API.
func text(s *string) string { return aws.ToString(s) }

// seconds is a duration as the API has it.
func seconds[N int | int32 | int64](n N) time.Duration { return time.Duration(n) * time.Second }
