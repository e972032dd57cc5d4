package deployment

import (
	"context"
	"fmt"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/cloudformation"
	"github.com/aws/aws-sdk-go-v2/service/lambda"
	"github.com/aws/aws-sdk-go-v2/service/lambda/types"

	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/doctor"
	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/shipped"
)

// tagStack is the tag that CloudFormation sets on its resources.
const tagStack = "aws:cloudformation:stack-name"

// stack reads a stack; DescribeStackResources returns up to 100 resources, and the template has fewer than 30.
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

// function reads the function, and the name of its stack from its tags.
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
		Name: text(c.FunctionName), ARN: text(c.FunctionArn), Role: text(c.Role), Function: shipped.Function{Runtime: string(c.Runtime), Handler: text(c.Handler)},
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
		f.Memory = int(*c.MemorySize)
	}
	if c.Timeout != nil {
		f.Timeout = seconds(*c.Timeout)
	}
	if out.Concurrency != nil && out.Concurrency.ReservedConcurrentExecutions != nil {
		n := int(*out.Concurrency.ReservedConcurrentExecutions)
		f.Reserved = &n
	}
	return f, out.Tags[tagStack], nil
}

// mappings reads the function's event source mappings.
func (r *Reader) mappings(ctx context.Context, f doctor.Known[doctor.Function]) (list []doctor.Mapping, err error) {
	if f.Err != nil {
		return nil, unread("the event source mapping", "the function")
	}
	pages := lambda.NewListEventSourceMappingsPaginator(r.lambda, &lambda.ListEventSourceMappingsInput{FunctionName: &f.Value.Name})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, err
		}
		for _, m := range page.EventSourceMappings {
			list = append(list, mapping(m))
		}
	}
	return list, nil
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
