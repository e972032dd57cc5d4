package stack_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"gotest.tools/v3/assert"

	"github.com/hardtack/packer-plugin-hardtack/pkg/stack"
)

func TestSettle(t *testing.T) {
	flags := map[string]string{stack.ParameterVPC: "vpc", stack.ParameterSubnets: "subnets", stack.ParameterBalancer: "balancer-subnets"}
	template := render(t, document(t, "three"))
	image := "/hardtack/stable/image-id"

	_, err := template.Settle(map[string]string{stack.ParameterBalancer: "subnet-1", "Machine": "yes"}, nil, flags)
	for _, part := range []string{"--vpc is needed", "--subnets is needed", "EtcdSubnetIds is needed", "--balancer-subnets: this cluster's template has no", "aws.loadBalancer", "Machine: this"} {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("%v\nwants %s", err, part)
		}
	}

	first := map[string]string{stack.ParameterVPC: "vpc-1", stack.ParameterSubnets: "subnet-1", stack.ParameterMembers: "subnet-1,subnet-2,subnet-3"}
	got, err := template.Settle(first, nil, flags)
	assert.NilError(t, err)
	want := map[string]string{stack.ParameterVPC: "vpc-1", stack.ParameterSubnets: "subnet-1", stack.ParameterMembers: "subnet-1,subnet-2,subnet-3", stack.ParameterImage: image}
	if diff := cmp.Diff(stack.Settled{Values: want}, got); diff != "" {
		t.Errorf("a new stack (-want +got):\n%s", diff)
	}

	have := map[string]string{stack.ParameterMachines: "no", stack.ParameterImage: "/hardtack/canary/image-id", "Gone": "x"}
	for key, value := range first {
		have[key] = value
	}
	got, err = template.Settle(map[string]string{stack.ParameterMachines: "yes"}, have, flags)
	assert.NilError(t, err)
	if diff := cmp.Diff(stack.Settled{Values: map[string]string{stack.ParameterMachines: "yes", stack.ParameterImage: image},
		Keep: []string{stack.ParameterMembers, stack.ParameterSubnets, stack.ParameterVPC}}, got); diff != "" {
		t.Errorf("one that there is (-want +got):\n%s", diff)
	}
}
