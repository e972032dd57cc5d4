package fleet_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"

	"github.com/hardtack/packer-plugin-hardtack/pkg/awsfake"
	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/fleet"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

func TestInstances(t *testing.T) {
	faults := &awsfake.Script{}
	a, f, _ := region(t, awsfake.Options{Faults: faults})
	run := func(cluster string) awsfake.Machine {
		t.Helper()
		m, err := a.EC2().Run(awsfake.Machine{Tags: map[string]string{role.TagCluster: cluster}})
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	byID, byName, foreign := run("demo"), run("demo"), run("other")
	run("demo")
	i := &fleet.Instances{Machines: f.Machines, Groups: f.Scaling, Cluster: "demo"}
	name := "ip-" + strings.ReplaceAll(byName.Private.String(), ".", "-") + ".eu-central-1.compute.internal"
	got, err := i.Instances(t.Context(), []string{byID.ID, name, foreign.ID, "nobody"})
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != 2 {
		t.Fatalf("got %+v, want %s and %s", got, byID.ID, byName.ID)
	}
	for _, one := range got {
		switch {
		case one.Gone, len(one.Addresses) != 1, !one.Is(byID.ID) && !one.Is(name):
			t.Errorf("got %+v", one)
		case one.ID == byName.ID && one.Addresses[0] != byName.Private:
			t.Errorf("got %+v, want its address %s", one, byName.Private)
		}
	}
	if !a.EC2().Terminate(byID.ID) {
		t.Fatal("it does not end")
	}
	if got, err = i.Instances(t.Context(), []string{byID.ID}); err != nil || len(got) != 1 || !got[0].Gone {
		t.Errorf("of one that has ended: %+v, %v", got, err)
	}
	faults.Add("DescribeInstances", awsfake.Fault{Refuse: &awsfake.Error{Code: "UnauthorizedOperation", Status: 403}})
	if _, err = i.Instances(t.Context(), []string{byID.ID}); err == nil || !strings.Contains(err.Error(), "allow ec2:DescribeInstances") {
		t.Errorf("without permission: %v", err)
	}
}

// TestInstancesInGroups reads the roles of a group's machines from the group, and believes no tag of a machine.
func TestInstancesInGroups(t *testing.T) {
	a, f, _ := region(t, awsfake.Options{})
	group(t, a, "demo-all", "masters+minions", 2, map[string]string{role.TagInstanceRole: "demo-all-role"})
	group(t, a, "other", "minions", 1, map[string]string{role.TagCluster: "other"})
	alone, err := a.EC2().Run(awsfake.Machine{Tags: map[string]string{role.TagCluster: "demo", role.TagRole: "masters", role.TagGroup + "x": "demo-all"}})
	if err != nil {
		t.Fatal(err)
	}
	all, err := f.Read(t.Context(), "demo")
	if err != nil {
		t.Fatal(err)
	}
	member := all.Groups[0].Members[0].InstanceID
	i := &fleet.Instances{Machines: f.Machines, Groups: f.Scaling, Cluster: "demo"}
	got, err := i.Instances(t.Context(), []string{member, alone.ID})
	if err != nil || len(got) != 2 {
		t.Fatalf("%+v, %v", got, err)
	}
	for _, one := range got {
		if !one.Running {
			t.Errorf("%s does not run", one.ID)
		}
		switch {
		case one.ID == alone.ID && (one.Group != "" || len(one.Roles) > 0 || one.Role != ""):
			t.Errorf("a machine outside the groups is %+v", one)
		case one.ID == member && (one.Group != "demo-all" || !one.Roles.Has(role.Masters) || !one.Roles.Has(role.Minions) ||
			one.Role != "demo-all-role" || one.State != "InService"):
			t.Errorf("the group's machine is %+v", one)
		}
	}
}

// asks is EC2, and remembers what it is asked by: ids or the cluster's tag.
type asks struct {
	ec2.DescribeInstancesAPIClient
	by []string
}

func (a *asks) DescribeInstances(ctx context.Context, in *ec2.DescribeInstancesInput,
	opts ...func(*ec2.Options)) (*ec2.DescribeInstancesOutput, error) {
	for _, f := range in.Filters {
		a.by = append(a.by, strings.TrimSuffix(aws.ToString(f.Name), role.TagCluster))
	}
	return a.DescribeInstancesAPIClient.DescribeInstances(ctx, in, opts...)
}

// Only a name that no instance of the ids has makes it read all instances of the cluster. A subnet can name its instances by their ids
// (EC2 User Guide, "EC2 instance hostnames and domains": i-0123456789abcdef.ec2.internal), and such a name is no id.
func TestInstancesAskForNoMoreThanTheNames(t *testing.T) {
	a, f, _ := region(t, awsfake.Options{})
	run := func(cluster string) (id, host string) {
		t.Helper()
		m, err := a.EC2().Run(awsfake.Machine{Tags: map[string]string{role.TagCluster: cluster}})
		if err != nil {
			t.Fatal(err)
		}
		return m.ID, "ip-" + strings.ReplaceAll(m.Private.String(), ".", "-")
	}
	one, oneHost := run("demo")
	two, twoHost := run("demo")
	foreign, foreignHost := run("other")
	for name, tt := range map[string]struct {
		names, by, want []string
	}{
		"an id":                            {[]string{one}, []string{"instance-id"}, []string{one}},
		"an id and its host name":          {[]string{one, oneHost}, []string{"instance-id"}, []string{one}},
		"an id that EC2 does not know":     {[]string{"i-00000000000000000"}, []string{"instance-id"}, nil},
		"another cluster's id":             {[]string{foreign}, []string{"instance-id"}, nil},
		"a host name":                      {[]string{oneHost}, []string{"tag:"}, []string{one}},
		"another cluster's host name":      {[]string{foreignHost}, []string{"tag:"}, nil},
		"an id and another's host name":    {[]string{one, twoHost}, []string{"instance-id", "tag:"}, []string{one, two}},
		"a host name that begins with i-":  {[]string{two + ".ec2.internal"}, []string{"tag:"}, []string{two}},
		"the id of an instance, and again": {[]string{two, one, two}, []string{"instance-id"}, []string{one, two}},
	} {
		spy := &asks{DescribeInstancesAPIClient: f.Machines}
		groups := a.Calls()["autoscaling:DescribeAutoScalingGroups"]
		all, err := (&fleet.Instances{Machines: spy, Groups: f.Scaling, Cluster: "demo"}).Instances(t.Context(), tt.names)
		var got []string
		for _, i := range all {
			got = append(got, i.ID)
		}
		slices.Sort(got)
		slices.Sort(tt.want)
		if err != nil || !slices.Equal(got, tt.want) || !slices.Equal(spy.by, tt.by) {
			t.Errorf("%s: got %v, %v by %v, want %v by %v", name, got, err, spy.by, tt.want, tt.by)
		}
		if asked := a.Calls()["autoscaling:DescribeAutoScalingGroups"] > groups; asked != (len(tt.want) > 0) {
			t.Errorf("%s: the groups were read: %t", name, asked)
		}
	}
}

// More ids than a filter takes (EC2 User Guide, "List and filter your resources": 200 values) are asked for in parts, and an
// instance that is named at both ends is still one.
func TestInstancesOfManyIDs(t *testing.T) {
	a, f, _ := region(t, awsfake.Options{})
	m, err := a.EC2().Run(awsfake.Machine{Tags: map[string]string{role.TagCluster: "demo"}})
	if err != nil {
		t.Fatal(err)
	}
	names := []string{m.ID}
	for i := range 200 {
		names = append(names, fmt.Sprintf("i-%017d", i))
	}
	got, err := (&fleet.Instances{Machines: f.Machines, Groups: f.Scaling, Cluster: "demo"}).Instances(t.Context(), append(names, m.ID))
	if err != nil || len(got) != 1 || got[0].ID != m.ID {
		t.Errorf("%+v, %v", got, err)
	}
}

// A part of what was to be read is nothing: each call that is refused is an error, which names the permission.
func TestInstancesGiveNoPart(t *testing.T) {
	for name, tt := range map[string]struct {
		action string
		after  int
		allow  string
	}{
		"by ids":     {"DescribeInstances", 0, "ec2:DescribeInstances"},
		"by the tag": {"DescribeInstances", 1, "ec2:DescribeInstances"},
		"the groups": {"DescribeAutoScalingGroups", 0, "autoscaling:DescribeAutoScalingGroups"},
	} {
		faults := &awsfake.Script{}
		a, f, _ := region(t, awsfake.Options{Faults: faults})
		m, err := a.EC2().Run(awsfake.Machine{Tags: map[string]string{role.TagCluster: "demo"}})
		if err != nil {
			t.Fatal(err)
		}
		denied := awsfake.Fault{Refuse: &awsfake.Error{Code: "UnauthorizedOperation", Status: 403}}
		faults.Add(tt.action, append(make([]awsfake.Fault, tt.after), denied)...)
		got, err := (&fleet.Instances{Machines: f.Machines, Groups: f.Scaling, Cluster: "demo"}).Instances(t.Context(), []string{m.ID, "nobody"})
		if err == nil || !strings.Contains(err.Error(), "allow "+tt.allow) || len(got) != 0 {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}
