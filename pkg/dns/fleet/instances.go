package fleet

import (
	"context"
	"net/netip"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/account"
	"github.com/hardtack/packer-plugin-hardtack/pkg/base/awserr"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/controller"
)

// Instances reads a cluster's instances for the node controller.
type Instances struct {
	// Machines is EC2's client, which retries by its own settings.
	Machines ec2.DescribeInstancesAPIClient
	Cluster  string
}

var _ controller.Instances = (*Instances)(nil)

// Instances returns the cluster's instances that have one of the names. It reads all instances of the cluster: a filter
// by name would miss terminated ones, which have no name.
func (f *Instances) Instances(ctx context.Context, names []string) ([]controller.Instance, error) {
	all, err := account.Machines(ctx, f.Machines, f.Cluster)
	var out []controller.Instance
	for _, i := range all {
		if one := instanceOf(i); slices.ContainsFunc(names, one.Is) {
			out = append(out, one)
		}
	}
	return out, awserr.Explain(err, "ec2:DescribeInstances for the masters' role")
}

func instanceOf(i ec2types.Instance) controller.Instance {
	out := controller.Instance{ID: aws.ToString(i.InstanceId), Name: aws.ToString(i.PrivateDnsName)}
	if i.State != nil {
		out.Gone = i.State.Name == ec2types.InstanceStateNameShuttingDown || i.State.Name == ec2types.InstanceStateNameTerminated
	}
	add := func(text *string) {
		if a := addr(text); a.IsValid() && !slices.Contains(out.Addresses, a) {
			out.Addresses = append(out.Addresses, a)
		}
	}
	add(i.PrivateIpAddress)
	add(i.Ipv6Address)
	for _, n := range i.NetworkInterfaces {
		for _, a := range n.PrivateIpAddresses {
			add(a.PrivateIpAddress)
		}
		for _, a := range n.Ipv6Addresses {
			add(a.Ipv6Address)
		}
	}
	if out.Name == "" && len(out.Addresses) > 0 {
		out.Name = ipName(out.Addresses[0])
	}
	return out
}

// ipName returns the beginning of an instance's private DNS name: "ip-10-1-0-12". EC2's API leaves the name out if the
// subnet names instances by resource id.
func ipName(a netip.Addr) string { return "ip-" + strings.ReplaceAll(a.String(), ".", "-") }
