package cluster_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"gotest.tools/v3/assert"

	"github.com/hardtack/packer-plugin-hardtack/pkg/ami"
	"github.com/hardtack/packer-plugin-hardtack/pkg/cluster"
	"github.com/hardtack/packer-plugin-hardtack/pkg/cluster/template"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// The ports that the image's tag names are opened by the stack, or those that the caller names instead. A tag that cannot be read is an
// error before anything changes, and an image without one opens none.
func TestOpenings(t *testing.T) {
	_, account, conf, _ := newCluster(t)
	createAuthorities(t, conf)
	c := complete(t, "groups:\n- {name: masters, roles: [masters, etcd]}\n- {name: minions, roles: [minions]}\n- {name: edge, roles: [ingress]}\n")
	opened := func(openings []role.Opening) ([]string, error) {
		deploy := cluster.Deployment{Openings: openings, Parameters: map[string]string{template.ParameterVPC: "vpc-00000000000000001", template.ParameterSubnets: "subnet-0000000000000000a"}}
		d, err := cluster.New(cluster.Config{Document: c, AWS: conf, Poll: time.Millisecond}).Diff(t.Context(), deploy)
		if err != nil {
			return nil, err
		}
		names := []string{}
		for _, change := range d.Changes {
			if strings.HasPrefix(change.Resource, "Opening") {
				names = append(names, change.Resource)
			}
		}
		slices.Sort(names)
		return names, nil
	}
	tagged := func(value string) string {
		return register(t, account, conf, 9, func(in *ec2.RegisterImageInput) {
			in.TagSpecifications = []ec2types.TagSpecification{{ResourceType: ec2types.ResourceTypeImage, Tags: []ec2types.Tag{
				{Key: aws.String("hardtack:roles"), Value: aws.String("masters+minions+etcd+ingress")}, {Key: aws.String(ami.TagPorts), Value: &value}}}}
		})
	}
	list := []role.Opening{{Role: "ingress", Protocol: "tcp", First: 80, Last: 80, From: role.Set{role.Minions}, Ranges: []string{"10.0.0.0/8"}}}
	tagged(role.FormatOpenings(list))
	got, err := opened(nil)
	assert.NilError(t, err)
	assert.DeepEqual(t, got, []string{"OpeningIngressTcp80From10x0x0x0x8", "OpeningIngressTcp80FromMinions"})

	list[0].First, list[0].Last, list[0].Ranges = 8443, 8443, nil
	got, err = opened(list)
	assert.NilError(t, err)
	assert.DeepEqual(t, got, []string{"OpeningIngressTcp8443FromMinions"})

	id := tagged("ingress:80")
	_, err = opened(nil)
	assert.Equal(t, typed[*cluster.OpeningsError](t, err).Image, id)
	assert.ErrorContains(t, err, ami.TagPorts)
	assert.Equal(t, account.Calls()["cloudformation:ExecuteChangeSet"], 0)

	register(t, account, conf, 9, func(*ec2.RegisterImageInput) {})
	got, err = opened(nil)
	assert.NilError(t, err)
	assert.Equal(t, len(got), 0)
}
