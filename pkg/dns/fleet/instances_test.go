package fleet_test

import (
	"strings"
	"testing"

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
	group(t, a, "demo-all", "masters+minions", 1, map[string]string{role.TagInstanceRole: "demo-all-role"})
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
		case one.ID == member && (one.Group != "demo-all" || !one.Roles.Has(role.Masters) || !one.Roles.Has(role.Minions) || one.Role != "demo-all-role"):
			t.Errorf("the group's machine is %+v", one)
		}
	}
}
