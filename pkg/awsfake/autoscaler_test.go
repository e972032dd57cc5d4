package awsfake

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling/types"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/google/go-cmp/cmp"
)

// activities are a group's, the newest first, as "STATUS DESCRIPTION".
func (b *bench) activities(t *testing.T, group string) (list []string) {
	t.Helper()
	out, err := b.autoscaling.DescribeScalingActivities(t.Context(), &autoscaling.DescribeScalingActivitiesInput{AutoScalingGroupName: &group})
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range out.Activities {
		if (a.EndTime == nil) != (a.StatusCode == types.ScalingActivityStatusCodeInProgress || a.StatusCode == types.ScalingActivityStatusCodeMidLifecycleAction) {
			t.Errorf("%s ends %v", a.StatusCode, a.EndTime)
		}
		list = append(list, string(a.StatusCode)+" "+*a.Description)
	}
	return list
}

// TestScalingActivities: a group's activities, from their begin through a hook to their end, and what is refused.
func TestScalingActivities(t *testing.T) {
	b := newBench(t, Options{})
	b.masters(t, "m", 1)
	b.hook(t, "m", "drain", transitionTerminating, 60, Continue)
	b.account.Tick()
	id := *b.describe(t, "m").Instances[0].InstanceId
	if got := b.activities(t, "m"); !slices.Equal(got, []string{"Successful Launching a new EC2 instance: " + id}) {
		t.Errorf("after the launch: %v", got)
	}
	if _, err := b.autoscaling.TerminateInstanceInAutoScalingGroup(t.Context(), &autoscaling.TerminateInstanceInAutoScalingGroupInput{InstanceId: &id, ShouldDecrementDesiredCapacity: aws.Bool(true)}); err != nil {
		t.Fatal(err)
	}
	b.account.Tick()
	if got := b.activities(t, "m"); len(got) != 2 || got[0] != "MidLifecycleAction Terminating EC2 instance: "+id {
		t.Errorf("at the hook: %v", got)
	}
	if err := b.account.AutoScaling().SetDesired("m", 1); err != nil {
		t.Fatal(err)
	}
	b.account.Tick()
	if got := b.activities(t, "m"); len(got) != 3 || got[0] != "MidLifecycleAction Terminating EC2 instance: "+id || !strings.HasPrefix(got[1], "Successful Launching") || got[1] == got[2] {
		t.Errorf("what waits at a hook is not before what came later and is complete: %v", got)
	}
	_, err := b.autoscaling.CompleteLifecycleAction(t.Context(), &autoscaling.CompleteLifecycleActionInput{AutoScalingGroupName: aws.String("m"), LifecycleHookName: aws.String("drain"), InstanceId: &id, LifecycleActionResult: aws.String(Continue)})
	if err != nil {
		t.Fatal(err)
	}
	b.account.Tick()
	if got := b.activities(t, "m"); got[1] != "Successful Terminating EC2 instance: "+id {
		t.Errorf("afterwards: %v", got)
	}
	_, err = b.autoscaling.DescribeScalingActivities(t.Context(), &autoscaling.DescribeScalingActivitiesInput{AutoScalingGroupName: aws.String("none")})
	wantCode(t, err, "ValidationError", "")
	_, err = b.autoscaling.DescribeScalingActivities(t.Context(), &autoscaling.DescribeScalingActivitiesInput{MaxRecords: aws.Int32(101)})
	wantCode(t, err, "ValidationError", "")
}

// types are the sizes of instance types, a page of five at a time.
func (b *bench) types(t *testing.T, names ...ec2types.InstanceType) map[string][4]string {
	t.Helper()
	out := map[string][4]string{}
	in := &ec2.DescribeInstanceTypesInput{InstanceTypes: names}
	if len(names) == 0 {
		in.MaxResults = aws.Int32(5)
	}
	for pages := ec2.NewDescribeInstanceTypesPaginator(b.ec2, in); pages.HasMorePages(); {
		page, err := pages.NextPage(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, i := range page.InstanceTypes {
			size := func(n int64) string { return string(rune('0'+n/1024/10)) + string(rune('0'+n/1024%10)) }
			starts := fmt.Sprint(i.SupportedBootModes, i.EbsInfo.NvmeSupport, i.NetworkInfo.EnaSupport)
			out[string(i.InstanceType)] = [4]string{string(i.ProcessorInfo.SupportedArchitectures[len(i.ProcessorInfo.SupportedArchitectures)-1]), string(rune('0' + *i.VCpuInfo.DefaultVCpus)), size(*i.MemoryInfo.SizeInMiB), starts}
		}
	}
	return out
}

// TestInstanceTypesAgainstMoto: moto has AWS's own answers.
func TestInstanceTypesAgainstMoto(t *testing.T) {
	ours := newBench(t, Options{})
	all := ours.types(t)
	var names []ec2types.InstanceType
	for _, one := range machineTypes {
		names = append(names, ec2types.InstanceType(one.Name))
	}
	if len(all) != len(names) {
		t.Errorf("pages have %d of %d types", len(all), len(names))
	}
	_, err := ours.ec2.DescribeInstanceTypes(t.Context(), &ec2.DescribeInstanceTypesInput{InstanceTypes: []ec2types.InstanceType{"m7i.large", "m7i.huge"}})
	wantCode(t, err, "InvalidInstanceType", "The following supplied instance types do not exist: [m7i.huge]")
	_, err = ours.ec2.DescribeInstanceTypes(t.Context(), &ec2.DescribeInstanceTypesInput{MaxResults: aws.Int32(4)})
	wantCode(t, err, "InvalidParameterValue", "")
	_, err = ours.ec2.DescribeInstanceTypes(t.Context(), &ec2.DescribeInstanceTypesInput{Filters: []ec2types.Filter{{Name: aws.String("bare-metal"), Values: []string{"true"}}}})
	wantCode(t, err, "InvalidParameterValue", "")
	out, err := ours.ec2.DescribeInstanceTypes(t.Context(), &ec2.DescribeInstanceTypesInput{Filters: []ec2types.Filter{{Name: aws.String("instance-type"), Values: []string{"m7g.*", "m7i.huge"}}}})
	if err != nil || len(out.InstanceTypes) != 1 || out.InstanceTypes[0].InstanceType != "m7g.large" {
		t.Errorf("%+v, %v", out, err)
	}
	if diff := cmp.Diff(motoBench(t).types(t, names...), all); diff != "" {
		t.Errorf("moto (-) and awsfake (+) differ:\n%s", diff)
	}
}
