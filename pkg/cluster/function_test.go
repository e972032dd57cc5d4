package cluster_test

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	awsformation "github.com/aws/aws-sdk-go-v2/service/cloudformation"
	"gotest.tools/v3/assert"

	"github.com/hardtack/packer-plugin-hardtack/pkg/awsfake"
	"github.com/hardtack/packer-plugin-hardtack/pkg/base/awserr"
	"github.com/hardtack/packer-plugin-hardtack/pkg/base/clock"
	"github.com/hardtack/packer-plugin-hardtack/pkg/cluster"
	"github.com/hardtack/packer-plugin-hardtack/pkg/cluster/cloudformation"
	"github.com/hardtack/packer-plugin-hardtack/pkg/cluster/template"
	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/shipped"
)

// functionTemplate is a stack with parameters that have defaults, and a resource that uses them all.
func functionTemplate(parameters map[string]string) string {
	text, used := "AWSTemplateFormatVersion: \"2010-09-09\"\nParameters:\n", ""
	for _, name := range slices.Sorted(maps.Keys(parameters)) {
		text += "  " + name + ": {Type: String, Default: \"" + parameters[name] + "\"}\n"
		used += "${" + name + "} "
	}
	return text + "Resources:\n  Zone: {Type: \"AWS::Route53::HostedZone\", Properties: {Name: function.example, HostedZoneConfig: {Comment: !Sub \"" + used + "\"}}}\n"
}

// Apply says whether the DNS function's stack keeps other names of the API than the document asks for, and the parameters that it then prints
// put that right, also where the document asks for none any more.
func TestFunctionBehind(t *testing.T) {
	_, account, conf, _ := newCluster(t)
	createAuthorities(t, conf)
	_, err := account.SSM().Put(awsfake.Parameter{Name: template.ImageParameter("stable"), Value: "ami-0000000000000000a"}, true)
	assert.NilError(t, err)
	stacks := &cloudformation.Stacks{API: awsformation.NewFromConfig(conf), Clock: clock.System{}, Poll: time.Millisecond}
	// deploy does as sam deploy: of a stack that there is, parameters that are not given keep their values.
	deploy := func(parameters map[string]string, given []string) {
		p := cloudformation.Proposal{Stack: cluster.FunctionStack("demo"), Template: functionTemplate(parameters), Parameters: map[string]string{}}
		for _, text := range given {
			name, value, _ := strings.Cut(text, "=")
			if _, there := parameters[name]; there {
				p.Parameters[name] = strings.Trim(value, `'"`)
			}
		}
		if now, err := stacks.Describe(t.Context(), p.Stack); err == nil {
			for name := range now.Parameters {
				_, given := p.Parameters[name]
				if _, there := parameters[name]; there && !given {
					p.Keep = append(p.Keep, name)
				}
			}
		}
		plan, err := stacks.Propose(t.Context(), p)
		assert.NilError(t, err)
		_, err = stacks.Execute(t.Context(), plan)
		assert.NilError(t, err)
	}
	apply := func(api string) (*cluster.Cluster, *cluster.Applied) {
		c := cluster.New(cluster.Config{Document: complete(t, api), AWS: conf, Poll: time.Millisecond})
		out, err := c.Apply(t.Context(), cluster.ApplyOptions{Deployment: cluster.Deployment{
			Parameters: map[string]string{template.ParameterVPC: testVPC, template.ParameterSubnets: testSubnet}}})
		assert.NilError(t, err)
		return c, out
	}
	const (
		none, internal = "", "api: {internal: true}\n"
		public, moved  = "api: {zone: {id: Z0123456789ABC, name: example.org}}\n", "api: {zone: {id: Z0123456789ABD, name: example.org}}\n"
		renamed        = "api: {internal: true, zone: {id: Z0123456789ABC, name: example.net}}\n"
	)
	// Of a stack that is not there nothing is known.
	_, out := apply(internal)
	assert.Assert(t, !out.FunctionBehind)
	// One of a template from before the API's names keeps none.
	deploy(map[string]string{"ClusterName": "demo"}, nil)
	_, out = apply(none)
	assert.Assert(t, !out.FunctionBehind)
	_, out = apply(internal)
	assert.Assert(t, out.FunctionBehind)

	names := map[string]string{shipped.ParamAPIInternal: "false", shipped.ParamAPIZone: "", shipped.ParamAPISuffix: ""}
	for _, api := range []string{internal, public, moved, renamed, none, internal, none} {
		c, out := apply(api)
		assert.Assert(t, out.FunctionBehind, api)
		deploy(names, c.FunctionParameters("Z1", out.Groups, out.FunctionBehind))
		_, out = apply(api)
		assert.Assert(t, !out.FunctionBehind, api)
		// Where nothing is behind, the command is as short as can be.
		short := c.FunctionParameters("Z1", out.Groups, out.FunctionBehind)
		assert.Equal(t, slices.ContainsFunc(short, func(p string) bool { return strings.HasPrefix(p, "Api") }), api != none, "%s", short)
	}

	// Of one that may not be read nothing is known either.
	blind := signed(t, account, "blind", awsfake.Administrator(), awsfake.Policy{{
		Deny: true, Actions: []string{"cloudformation:DescribeStacks"}, Resources: []string{"arn:aws:cloudformation:*:*:stack/" + cluster.FunctionStack("demo") + "/*"},
	}})
	_, err = (&cloudformation.Stacks{API: awsformation.NewFromConfig(blind)}).Describe(t.Context(), cluster.FunctionStack("demo"))
	assert.Equal(t, awserr.KindOf(err), awserr.Denied, "%v", err)
	conf = blind
	_, out = apply(internal)
	assert.Assert(t, !out.FunctionBehind)
}
