package cluster_test

import (
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/route53"
	route53types "github.com/aws/aws-sdk-go-v2/service/route53/types"
	"gotest.tools/v3/assert"

	"github.com/hardtack/packer-plugin-hardtack/pkg/awsfake/moto"
	"github.com/hardtack/packer-plugin-hardtack/pkg/cluster"
	"github.com/hardtack/packer-plugin-hardtack/pkg/cluster/template"
	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/doctor"
)

// The network and the quotas as moto, which is not ours, shows them: a new VPC, then one with a way out, names and a zone. Moto has no
// SimulatePrincipalPolicy, GetAccountLimit and DescribeAccountLimits, and Service Quotas of one service only.
func TestDoctorAgainstMoto(t *testing.T) {
	ctx, url := t.Context(), moto.Start(t)
	conf := aws.Config{Region: "us-west-2", BaseEndpoint: &url, Credentials: credentials.NewStaticCredentialsProvider("AKIDEXAMPLE", "secret", ""), RetryMaxAttempts: 1}
	api := ec2.NewFromConfig(conf)
	vpc, err := api.CreateVpc(ctx, &ec2.CreateVpcInput{CidrBlock: aws.String("10.0.0.0/16")})
	assert.NilError(t, err)
	subnet, err := api.CreateSubnet(ctx, &ec2.CreateSubnetInput{VpcId: vpc.Vpc.VpcId, CidrBlock: aws.String("10.0.0.0/24"), AvailabilityZone: aws.String("us-west-2a")})
	assert.NilError(t, err)
	id := aws.ToString(subnet.Subnet.SubnetId)
	c := cluster.New(cluster.Config{Document: complete(t), AWS: conf, Poll: time.Millisecond})
	look := func(more map[string]string) map[string]doctor.Check {
		t.Helper()
		deploy := cluster.Deployment{Parameters: map[string]string{template.ParameterVPC: *vpc.Vpc.VpcId, template.ParameterSubnets: id}}
		for key, value := range more {
			deploy.Parameters[key] = value
		}
		of := map[string]doctor.Check{}
		for _, check := range c.Doctor(ctx, deploy) {
			of[check.Name] = check
		}
		return of
	}
	says := func(have doctor.Check, state doctor.State, text string) {
		t.Helper()
		assert.Assert(t, have.State == state && strings.Contains(have.Text, text), "%+v", have)
	}
	checks := look(nil)
	says(checks["network.dns"], doctor.Error, *vpc.Vpc.VpcId+" has enableDnsHostnames off")
	says(checks["network.zone"], doctor.OK, "the stack makes it")
	says(checks["network.ranges"], doctor.OK, "(10.0.0.0/16)")
	says(checks["network.addresses"], doctor.OK, "251 free addresses")
	says(checks["network.reach."+id], doctor.Error, "it has no route to everywhere")
	says(checks["quotas.roles"], doctor.OK, "of 1000 are used")
	says(checks["quotas.profiles"], doctor.OK, "of 1000 are used")

	// An internet gateway is not enough without public addresses; endpoints are another way.
	gateway, err := api.CreateInternetGateway(ctx, &ec2.CreateInternetGatewayInput{})
	assert.NilError(t, err)
	_, err = api.AttachInternetGateway(ctx, &ec2.AttachInternetGatewayInput{InternetGatewayId: gateway.InternetGateway.InternetGatewayId, VpcId: vpc.Vpc.VpcId})
	assert.NilError(t, err)
	tables, err := api.DescribeRouteTables(ctx, &ec2.DescribeRouteTablesInput{Filters: []types.Filter{{Name: aws.String("vpc-id"), Values: []string{*vpc.Vpc.VpcId}}}})
	assert.NilError(t, err)
	table := tables.RouteTables[0].RouteTableId
	_, err = api.CreateRoute(ctx, &ec2.CreateRouteInput{RouteTableId: table, DestinationCidrBlock: aws.String("0.0.0.0/0"), GatewayId: gateway.InternetGateway.InternetGatewayId})
	assert.NilError(t, err)
	says(look(nil)["network.reach."+id], doctor.Error, "and its machines get no public address, and there is no way to autoscaling (no endpoint), ec2 (no endpoint), s3 (no endpoint), ssm (no endpoint), sts (no endpoint)")
	for _, service := range []string{"autoscaling", "ec2", "ssm", "sts"} {
		_, err := api.CreateVpcEndpoint(ctx, &ec2.CreateVpcEndpointInput{VpcId: vpc.Vpc.VpcId, ServiceName: aws.String("com.amazonaws.us-west-2." + service), VpcEndpointType: types.VpcEndpointTypeInterface, SubnetIds: []string{id}, PrivateDnsEnabled: aws.Bool(true)})
		assert.NilError(t, err)
	}
	says(look(nil)["network.reach."+id], doctor.Error, "there is no way to s3 (no endpoint)")
	_, err = api.CreateVpcEndpoint(ctx, &ec2.CreateVpcEndpointInput{VpcId: vpc.Vpc.VpcId, ServiceName: aws.String("com.amazonaws.us-west-2.s3"), VpcEndpointType: types.VpcEndpointTypeGateway, RouteTableIds: []string{*table}})
	assert.NilError(t, err)
	says(look(nil)["network.reach."+id], doctor.OK, "by endpoints in the VPC")
	_, err = api.ModifySubnetAttribute(ctx, &ec2.ModifySubnetAttributeInput{SubnetId: &id, MapPublicIpOnLaunch: &types.AttributeBooleanValue{Value: aws.Bool(true)}})
	assert.NilError(t, err)
	says(look(nil)["network.reach."+id], doctor.OK, "by "+*gateway.InternetGateway.InternetGatewayId)

	// Names, and a zone that somebody else has made for the VPC.
	_, err = api.ModifyVpcAttribute(ctx, &ec2.ModifyVpcAttributeInput{VpcId: vpc.Vpc.VpcId, EnableDnsHostnames: &types.AttributeBooleanValue{Value: aws.Bool(true)}})
	assert.NilError(t, err)
	says(look(nil)["network.dns"], doctor.OK, "answers names from private zones")
	zone, err := route53.NewFromConfig(conf).CreateHostedZone(ctx, &route53.CreateHostedZoneInput{Name: aws.String("k8s"), CallerReference: aws.String("1"),
		HostedZoneConfig: &route53types.HostedZoneConfig{PrivateZone: true}, VPC: &route53types.VPC{VPCId: vpc.Vpc.VpcId, VPCRegion: route53types.VPCRegionUsWest2}})
	assert.NilError(t, err)
	made := strings.TrimPrefix(*zone.HostedZone.Id, "/hostedzone/")
	says(look(nil)["network.zone"], doctor.Error, "has a private zone k8s already, "+made)
	says(look(map[string]string{template.ParameterZone: made})["network.zone"], doctor.OK, "from zone "+made)
}
