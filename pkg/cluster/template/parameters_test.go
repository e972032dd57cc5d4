package template_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"gotest.tools/v3/assert"

	"github.com/hardtack/packer-plugin-hardtack/pkg/cluster/template"
)

func TestSettle(t *testing.T) {
	flags := map[string]string{template.ParameterVPC: "vpc", template.ParameterSubnets: "subnets", template.ParameterBalancer: "balancer-subnets"}
	tmpl := render(t, document(t, "three"))
	image := "/hardtack/stable/image-id"

	_, err := tmpl.Settle(map[string]string{template.ParameterBalancer: "subnet-1", "Machine": "yes"}, nil)
	var wrong *template.ParameterError
	if !errors.As(err, &wrong) {
		t.Fatalf("%v", err)
	}
	text := wrong.Named(func(parameter string) string {
		if name, ok := flags[parameter]; ok {
			return "--" + name
		}
		return parameter
	})
	if !strings.Contains(err.Error(), template.ParameterVPC+" is needed") {
		t.Errorf("%v", err)
	}
	for _, part := range []string{"--vpc is needed", "--subnets is needed", "EtcdSubnetIds is needed", "--balancer-subnets: this cluster's template has no", "aws.loadBalancer", "Machine: this"} {
		if !strings.Contains(text, part) {
			t.Errorf("%s\nwants %s", text, part)
		}
	}

	if strings.Contains(text, template.ParameterZones) {
		t.Errorf("%s\nasks for what the subnets say", text)
	}

	first := map[string]string{template.ParameterVPC: "vpc-1", template.ParameterSubnets: "subnet-1", template.ParameterMembers: "subnet-1,subnet-2,subnet-3", template.ParameterZones: "a,b,c"}
	got, err := tmpl.Settle(first, nil)
	assert.NilError(t, err)
	want := map[string]string{template.ParameterVPC: "vpc-1", template.ParameterSubnets: "subnet-1", template.ParameterMembers: "subnet-1,subnet-2,subnet-3", template.ParameterZones: "a,b,c", template.ParameterImage: image}
	if diff := cmp.Diff(template.Settled{Values: want}, got); diff != "" {
		t.Errorf("a new stack (-want +got):\n%s", diff)
	}

	have := map[string]string{template.ParameterMachines: "no", template.ParameterImage: "/hardtack/canary/image-id", "Gone": "x"}
	for key, value := range first {
		have[key] = value
	}
	got, err = tmpl.Settle(map[string]string{template.ParameterMachines: "yes"}, have)
	assert.NilError(t, err)
	if diff := cmp.Diff(template.Settled{Values: map[string]string{template.ParameterMachines: "yes", template.ParameterImage: image},
		Keep: []string{template.ParameterMembers, template.ParameterZones, template.ParameterSubnets, template.ParameterVPC}}, got); diff != "" {
		t.Errorf("one that there is (-want +got):\n%s", diff)
	}
}
