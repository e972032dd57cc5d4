package awsfake

import (
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
)

// Subnets are described with their zones, and one that nobody has added does not exist.
func TestDescribeSubnets(t *testing.T) {
	b := newBench(t, Options{})
	if _, err := b.ec2.DescribeSubnets(t.Context(), &ec2.DescribeSubnetsInput{SubnetIds: []string{"subnet-1"}}); err == nil || !strings.Contains(err.Error(), "InvalidSubnetID.NotFound") {
		t.Errorf("%v", err)
	}
	b.account.EC2().AddSubnet(Subnet{ID: "subnet-1", VPC: "vpc-1", Zone: "us-west-2a"})
	b.account.EC2().AddSubnet(Subnet{ID: "subnet-2", VPC: "vpc-1", Zone: "us-west-2b"})
	for _, ids := range [][]string{nil, {"subnet-2"}} {
		out, err := b.ec2.DescribeSubnets(t.Context(), &ec2.DescribeSubnetsInput{SubnetIds: ids})
		if err != nil || len(out.Subnets) != 2-len(ids) {
			t.Fatalf("%v, %v", out, err)
		}
		if last := out.Subnets[len(out.Subnets)-1]; aws.ToString(last.SubnetId) != "subnet-2" || aws.ToString(last.AvailabilityZone) != "us-west-2b" || aws.ToString(last.VpcId) != "vpc-1" {
			t.Errorf("%+v", last)
		}
	}
	for value, ok := range map[string]bool{"us-west-2a,us-west-2c": true, "us-west-2a,": false, "eu-central-1a": false} {
		if _, err := zoneList(value); (err == nil) != ok {
			t.Errorf("zones %q: %v", value, err)
		}
	}
}
