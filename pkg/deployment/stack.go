package deployment

import (
	"context"
	"fmt"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/cloudformation"
	"github.com/aws/aws-sdk-go-v2/service/lambda"
	"github.com/aws/aws-sdk-go-v2/service/lambda/types"

	"github.com/hardtack/packer-plugin-hardtack/pkg/doctor"
)

// tagStack is the tag that CloudFormation gives to what it makes.
const tagStack = "aws:cloudformation:stack-name"

// stack reads a stack; DescribeStackResources gives up to 100 resources, and the template has 15.
func (r *Reader) stack(ctx context.Context, name string) (doctor.Stack, error) {
	s := doctor.Stack{Name: name, Parameters: map[string]string{}, Resources: map[string]doctor.Resource{}}
	out, err := r.stacks.DescribeStacks(ctx, &cloudformation.DescribeStacksInput{StackName: &name})
	if err != nil {
		return s, err
	}
	if len(out.Stacks) != 1 {
		return s, fmt.Errorf("reading stack %s: CloudFormation has %d of the name", name, len(out.Stacks))
	}
	s.Status, s.Reason = string(out.Stacks[0].StackStatus), text(out.Stacks[0].StackStatusReason)
	for _, p := range out.Stacks[0].Parameters {
		s.Parameters[text(p.ParameterKey)] = text(p.ParameterValue)
	}
	resources, err := r.stacks.DescribeStackResources(ctx, &cloudformation.DescribeStackResourcesInput{StackName: &name})
	if err != nil {
		return s, err
	}
	for _, x := range resources.StackResources {
		res := doctor.Resource{Type: text(x.ResourceType), ID: text(x.PhysicalResourceId), Status: string(x.ResourceStatus), Reason: text(x.ResourceStatusReason)}
		if x.DriftInformation != nil {
			res.Drift = string(x.DriftInformation.StackResourceDriftStatus)
		}
		s.Resources[text(x.LogicalResourceId)] = res
	}
	return s, nil
}

// function reads the function, and the name of the stack that it says it is of.
func (r *Reader) function(ctx context.Context, name string) (f doctor.Function, stack string, err error) {
	out, err := r.lambda.GetFunction(ctx, &lambda.GetFunctionInput{FunctionName: &name})
	if err != nil {
		return f, "", err
	}
	c := out.Configuration
	if c == nil {
		return f, "", fmt.Errorf("reading function %s: Lambda gives no configuration", name)
	}
	f = doctor.Function{
		Name: text(c.FunctionName), ARN: text(c.FunctionArn), Role: text(c.Role), Runtime: string(c.Runtime), Handler: text(c.Handler),
		Architecture: "x86_64", CodeSHA256: text(c.CodeSha256), LogGroup: "/aws/lambda/" + text(c.FunctionName), // Lambda's defaults
		Status: doctor.Status{State: string(c.State), StateReason: text(c.StateReason), Update: string(c.LastUpdateStatus), UpdateReason: text(c.LastUpdateStatusReason)},
	}
	if len(c.Architectures) > 0 {
		f.Architecture = string(c.Architectures[0])
	}
	if c.LoggingConfig != nil && c.LoggingConfig.LogGroup != nil {
		f.LogGroup = *c.LoggingConfig.LogGroup
	}
	if c.Environment != nil {
		f.Environment = c.Environment.Variables
	}
	if c.MemorySize != nil {
		f.Size.Memory = int(*c.MemorySize)
	}
	if c.Timeout != nil {
		f.Size.Timeout = seconds(*c.Timeout)
	}
	if out.Concurrency != nil && out.Concurrency.ReservedConcurrentExecutions != nil {
		n := int(*out.Concurrency.ReservedConcurrentExecutions)
		f.Size.Reserved = &n
	}
	return f, out.Tags[tagStack], nil
}

// mappings reads the event sources of the function.
func (r *Reader) mappings(ctx context.Context, f doctor.Known[doctor.Function]) (k doctor.Known[[]doctor.Mapping]) {
	if f.Err != nil {
		k.Err = unread("the event source mapping", "the function")
		return k
	}
	pages := lambda.NewListEventSourceMappingsPaginator(r.lambda, &lambda.ListEventSourceMappingsInput{FunctionName: &f.Value.Name})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			k.Err = explain(err)
			return k
		}
		for _, m := range page.EventSourceMappings {
			k.Value = append(k.Value, mapping(m))
		}
	}
	return k
}

func mapping(m types.EventSourceMappingConfiguration) doctor.Mapping {
	out := doctor.Mapping{ID: text(m.UUID), Source: text(m.EventSourceArn), State: text(m.State), Reason: text(m.StateTransitionReason), LastResult: text(m.LastProcessingResult)}
	if m.BatchSize != nil {
		out.Batch = int(*m.BatchSize)
	}
	if m.MaximumBatchingWindowInSeconds != nil {
		out.Window = seconds(*m.MaximumBatchingWindowInSeconds)
	}
	if m.ScalingConfig != nil && m.ScalingConfig.MaximumConcurrency != nil {
		out.Concurrency = int(*m.ScalingConfig.MaximumConcurrency)
	}
	for _, t := range m.FunctionResponseTypes {
		out.ReportsFailures = out.ReportsFailures || strings.EqualFold(string(t), string(types.FunctionResponseTypeReportBatchItemFailures))
	}
	return out
}
