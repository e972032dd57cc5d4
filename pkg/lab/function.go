package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/route53"
	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/hardtack/packer-plugin-hardtack/lambda"
	"github.com/hardtack/packer-plugin-hardtack/pkg/awsfake"
	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/function"
	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/record"
	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/shipped"
	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/zone"
)

// functionName is the name of the function, its role and its queue; the dead-letter queue adds a suffix.
const functionName = "hardtack-dns"

// functionLife is longer than any lab is up: Lambda gives each new environment of a function new credentials, and here
// one environment lives as long as the daemon.
const functionLife = 10 * 365 * 24 * time.Hour

// deployment renders the function's template for the region and, once it exists, its zone.
func (r *region) deployment() (*shipped.Deployment, error) {
	t, err := shipped.Parse(lambda.Template)
	if err != nil {
		return nil, err
	}
	return t.Deploy(shipped.Stack{
		Parameters: map[string]string{
			shipped.ParamCluster: r.plan.Cluster.Name, shipped.ParamGroups: strings.Join(r.plan.namesIn(r.account), ","), shipped.ParamZone: r.zoneID(),
		},
		References: map[string]string{
			"AWS::Partition": "aws", "AWS::Region": regionName, "AWS::AccountId": accountID,
			shipped.IDQueue: r.queue, shipped.IDQueue + ".Arn": queueARN(functionName), shipped.IDDeadLetters + ".Arn": queueARN(deadLetters),
			shipped.IDLogs + ".Arn": "arn:aws:logs:" + regionName + ":" + accountID + ":log-group:" + functionName + ":*",
		},
	})
}

const deadLetters = functionName + "-dead"

func queueARN(name string) string { return "arn:aws:sqs:" + regionName + ":" + accountID + ":" + name }

// makeQueue makes the template's queues and the event rules that fill them. The trigger does the scheduled rule.
func (r *region) makeQueue() error {
	d, err := r.deployment()
	if err != nil {
		return err
	}
	if _, err := r.account.SQS().CreateQueue(deadLetters, map[string]string{"MessageRetentionPeriod": inSeconds(d.DeadLetters.Retention)}); err != nil {
		return fmt.Errorf("making the dead-letter queue: %w", err)
	}
	redrive, err := json.Marshal(map[string]any{"deadLetterTargetArn": d.Queue.DeadLetterARN, "maxReceiveCount": d.Queue.MaxReceive})
	if err != nil {
		return fmt.Errorf("encoding the redrive policy: %w", err)
	}
	r.queue, err = r.account.SQS().CreateQueue(functionName, map[string]string{
		"VisibilityTimeout": inSeconds(d.Queue.Visibility), "MessageRetentionPeriod": inSeconds(d.Queue.Retention), "RedrivePolicy": string(redrive),
	})
	if err != nil {
		return fmt.Errorf("making the queue: %w", err)
	}
	for id, rule := range d.Rules {
		if rule.Pattern == "" {
			continue
		}
		var pattern any
		if err := json.Unmarshal([]byte(rule.Pattern), &pattern); err != nil {
			return fmt.Errorf("reading the pattern of rule %s: %w", id, err)
		}
		r.account.Events().ToQueue(r.queue, func(e awsfake.Event) bool { return matchesEvent(pattern, e) })
	}
	return nil
}

func inSeconds(d time.Duration) string { return strconv.Itoa(int(d / time.Second)) }

// matchesEvent reports whether an event matches a rule's pattern.
func matchesEvent(pattern any, e awsfake.Event) bool {
	var event any
	text, err := json.Marshal(e)
	return err == nil && json.Unmarshal(text, &event) == nil && matches(pattern, event)
}

// matches reports whether value has every field of pattern, each with one of the values that the pattern lists.
func matches(pattern, value any) bool {
	fields, ok := pattern.(map[string]any)
	if !ok {
		list, _ := pattern.([]any)
		return slices.Contains(list, value)
	}
	have, ok := value.(map[string]any)
	for name, wanted := range fields {
		if name == "$or" { // one of these patterns, for the event itself
			alternatives, _ := wanted.([]any)
			ok = ok && slices.ContainsFunc(alternatives, func(p any) bool { return matches(p, value) })
			continue
		}
		ok = ok && matches(wanted, have[name])
	}
	return ok
}

// zonePoll is the interval at which invoke checks whether the region has its zone yet.
const zonePoll = time.Second

// invoke waits for the zone, since `sam deploy` takes it as a parameter, and then invokes the function until ctx ends.
// called is called after every invocation.
func (r *region) invoke(ctx context.Context, called func()) {
	query := zone.Query{Name: record.DefaultSuffix, VPC: vpcID, Region: regionName}
	for r.zoneID() == "" {
		if id, err := zone.FindZone(ctx, route53.NewFromConfig(r.owner), query); err == nil {
			r.setZone(id)
			break
		} else if !errors.Is(err, zone.ErrNoZone) && ctx.Err() == nil {
			r.log.Warn("looking for the cluster's zone", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(zonePoll):
		}
	}
	for ctx.Err() == nil {
		groups := r.plan.namesIn(r.account)
		t, err := r.makeFunction(called)
		if err != nil {
			r.log.Error("making the DNS function", "error", err)
			return
		}
		// Who changes a stack's groups deploys the function with their names, as `hardtack stack apply` says.
		t.stale = func() bool { return !slices.Equal(r.plan.namesIn(r.account), groups) }
		t.run(ctx)
	}
}

// makeFunction makes the template's role, and the handler in an environment as Lambda gives it.
func (r *region) makeFunction(called func()) (*trigger, error) {
	d, err := r.deployment()
	if err != nil {
		return nil, err
	}
	document, err := d.PolicyDocument()
	if err != nil {
		return nil, fmt.Errorf("encoding the function's policy: %w", err)
	}
	policy, err := awsfake.ParsePolicy(document)
	if err != nil {
		return nil, fmt.Errorf("reading the function's policy: %w", err)
	}
	r.account.AddRole(functionName, policy)
	issued, err := r.account.Issue(functionName, "function", functionLife)
	if err != nil {
		return nil, fmt.Errorf("making the function's credentials: %w", err)
	}
	key := credentials(issued)
	env := d.Function.Environment
	for name, value := range map[string]string{
		function.EnvRegion: regionName, function.EnvEndpoint: endpoint,
		function.EnvKey: key.AccessKeyID, function.EnvSecret: key.SecretAccessKey, function.EnvSession: key.SessionToken,
	} {
		env[name] = value
	}
	settings, err := function.Read(func(name string) string { return env[name] })
	if err != nil {
		return nil, err
	}
	settings.Client = r.wire.client
	handler, err := function.Connect(settings, io.Discard, r.log)
	if err != nil {
		return nil, err
	}
	return &trigger{
		queue: sqs.NewFromConfig(r.wire.principal(regionName, key)), url: r.queue, handler: handler, now: time.Now, called: called, log: r.log,
		batch: d.Mapping.Batch, window: d.Mapping.Window, timeout: d.Function.Timeout, every: d.Rules[shipped.IDSweep].Every,
	}, nil
}
