package fleet

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/hardtack/packer-plugin-hardtack/pkg/agent/control"
)

// Instances reads a cluster's machines for who keeps its nodes in order.
type Instances struct {
	// Machines is EC2's client; how often it tries again is its own.
	Machines ec2.DescribeInstancesAPIClient
	Cluster  string
}

var _ control.Instances = (*Instances)(nil)

// Instances are those of the cluster that have one of the names. All of the cluster's are asked for: a filter by name
// would not find a machine that has ended, which has none any more.
func (f *Instances) Instances(ctx context.Context, names []string) ([]control.Instance, error) {
	var out []control.Instance
	pages := ec2.NewDescribeInstancesPaginator(f.Machines, &ec2.DescribeInstancesInput{
		Filters:    []ec2types.Filter{{Name: aws.String("tag:" + TagCluster), Values: []string{f.Cluster}}},
		MaxResults: aws.Int32(machinePage),
	})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, fmt.Errorf("reading the instances of %s: %w (allow ec2:DescribeInstances for the masters' role)", f.Cluster, err)
		}
		for _, r := range page.Reservations {
			for _, i := range r.Instances {
				if one := instanceOf(i); slices.ContainsFunc(names, one.Is) {
					out = append(out, one)
				}
			}
		}
	}
	return out, nil
}

func instanceOf(i ec2types.Instance) control.Instance {
	out := control.Instance{ID: aws.ToString(i.InstanceId), Name: aws.ToString(i.PrivateDnsName)}
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

// ipName is how EC2 begins the private DNS name of an instance, by its address: "ip-10-1-0-12". Its API leaves the name
// out where the subnet names instances by their ids.
func ipName(a netip.Addr) string { return "ip-" + strings.ReplaceAll(a.String(), ".", "-") }
