// Package deployment reads a deployed DNS function from AWS, for pkg/dns/doctor.
//
// Its rule: it only reads, and each part independently: a part that cannot be read has an error, and the others are
// still read.
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

	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/doctor"
	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/shipped"
)

// Target identifies a deployment by its stack, or by the function's name if there is no stack or the caller may not
// read it. One of them is required.
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
	template *shipped.Template
}

// New returns a Reader that uses the configuration's credentials and region. settings parses a function's environment,
// and its error has a line for each problem. The template lists the expected alarms and the calls of the role.
func New(c aws.Config, now func() time.Time, settings func(environment map[string]string) (doctor.Settings, error), template *shipped.Template) *Reader {
	return &Reader{
		stacks: cloudformation.NewFromConfig(c), lambda: lambda.NewFromConfig(c), queues: sqs.NewFromConfig(c), rules: eventbridge.NewFromConfig(c),
		metrics: cloudwatch.NewFromConfig(c), logs: cloudwatchlogs.NewFromConfig(c), iam: iam.NewFromConfig(c), scaling: autoscaling.NewFromConfig(c),
		now: now, settings: settings, template: template,
	}
}

// Read reads everything but the records. A part that cannot be read has its error in Facts.
func (r *Reader) Read(ctx context.Context, t Target) doctor.Facts {
	f := doctor.Facts{Records: map[string]doctor.Known[doctor.Records]{}}
	if t.Stack != "" {
		f.Stack = known(r.stack(ctx, t.Stack))
	}
	name := t.Function
	if name == "" {
		name = f.Stack.Value.Resources[shipped.IDFunction].ID
	}
	f.Function = doctor.Known[doctor.Function]{Err: unread("the function", "the stack")}
	if name != "" {
		var stack string
		f.Function.Value, stack, f.Function.Err = r.function(ctx, name)
		f.Function.Err = Explain(f.Function.Err)
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

// parts reads the parts that depend on the function, and then those that depend on its queue.
func (r *Reader) parts(ctx context.Context, f *doctor.Facts) {
	var wait sync.WaitGroup
	part := func(read func(context.Context)) {
		wait.Go(func() {
			short, cancel := share(ctx)
			defer cancel()
			read(short)
		})
	}
	part(func(ctx context.Context) { f.Mappings = known(r.mappings(ctx, f.Function)) })
	part(func(ctx context.Context) { f.Queue, f.Dead = r.twoQueues(ctx, f) })
	part(func(ctx context.Context) { f.Logs = r.logsOf(ctx, f.Function) })
	part(func(ctx context.Context) { f.Groups = known(r.groups(ctx, f.Settings)) })
	wait.Wait()
	part(func(ctx context.Context) { f.Rules = known(r.rulesOf(ctx, f.Stack, f.Queue)) })
	part(func(ctx context.Context) { f.Role = known(r.role(ctx, f)) })
	part(func(ctx context.Context) { f.Alarms = known(r.alarms(ctx, f)) })
	wait.Wait()
}

// share returns a context with a third of the remaining time, so that a service that does not answer leaves time for the
// others.
func share(ctx context.Context) (context.Context, context.CancelFunc) {
	deadline, limited := ctx.Deadline()
	if !limited {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, time.Until(deadline)/3)
}

// known returns a part or its error.
func known[T any](value T, err error) doctor.Known[T] {
	return doctor.Known[T]{Value: value, Err: Explain(err)}
}

// unread returns the error of a part that depends on another one, which could not be read.
func unread(what, needs string) error {
	return fmt.Errorf("%s: %w without %s", what, doctor.ErrUnread, needs)
}

// text returns a string of the API.
func text(s *string) string { return aws.ToString(s) }

// seconds converts the API's seconds to a duration.
func seconds[N int | int32 | int64](n N) time.Duration { return time.Duration(n) * time.Second }
