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
	i := &fleet.Instances{Machines: f.Machines, Cluster: "demo"}
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
