package awsfake

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
)

// ids are the machines that a DescribeInstances call names, in its order.
func (b *bench) ids(t *testing.T, in *ec2.DescribeInstancesInput) []string {
	t.Helper()
	out, err := b.ec2.DescribeInstances(t.Context(), in)
	if err != nil {
		t.Fatalf("describing instances: %v", err)
	}
	list := []string{}
	for _, r := range out.Reservations {
		for _, i := range r.Instances {
			list = append(list, *i.InstanceId)
		}
	}
	return list
}

func where(name string, values ...string) types.Filter {
	return types.Filter{Name: &name, Values: values}
}

func TestDescribeInstances(t *testing.T) {
	b := newBench(t, Options{EC2: EC2Options{IPv6: true, Public: true}})
	var all []Machine
	for n := range 12 {
		all = append(all, b.run(t, Machine{Zone: "us-west-2a", Type: "t3.medium", Tags: map[string]string{"Role": []string{"masters", "minions", "etcd"}[n%3]}}))
	}
	b.account.EC2().Terminate(all[0].ID)
	for _, test := range []struct {
		name    string
		filters []types.Filter
		want    int
	}{
		{"no filter, the whole account", nil, 12},
		{"a tag", []types.Filter{where("tag:Role", "masters")}, 4},
		{"one of two values and a state", []types.Filter{where("tag:Role", "masters", "minions"), where("instance-state-name", "running")}, 7},
		{"a wildcard", []types.Filter{where("tag:Role", "m*")}, 8},
		{"an id that is not there", []types.Filter{where("instance-id", "i-00000000")}, 0},
		{"an id", []types.Filter{where("instance-id", all[5].ID, "i-00000000")}, 1},
		{"a tag's key", []types.Filter{where("tag-key", "Role")}, 12},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := b.ids(t, &ec2.DescribeInstancesInput{Filters: test.filters}); len(got) != test.want {
				t.Errorf("%d machines, want %d", len(got), test.want)
			}
		})
	}
	out, err := b.ec2.DescribeInstances(t.Context(), &ec2.DescribeInstancesInput{InstanceIds: []string{all[2].ID}})
	if err != nil {
		t.Fatal(err)
	}
	i := out.Reservations[0].Instances[0]
	got := fmt.Sprint(*i.PrivateIpAddress, " ", *i.PublicIpAddress, " ", *i.Ipv6Address, " ", *i.NetworkInterfaces[0].Ipv6Addresses[0].Ipv6Address, " ", i.State.Name)
	if want := "10.0.0.12 198.18.0.12 2001:db8::c 2001:db8::c running"; got != want {
		t.Errorf("the machine is %s, want %s", got, want)
	}
	card := i.NetworkInterfaces[0].Association
	if got, want := fmt.Sprint(*i.PublicDnsName, " ", *card.PublicIp, " ", *card.PublicDnsName),
		"ec2-198-18-0-12.us-west-2.compute.amazonaws.com 198.18.0.12 ec2-198-18-0-12.us-west-2.compute.amazonaws.com"; got != want {
		t.Errorf("the machine is called %s, want %s", got, want)
	}
	b.clock.Advance(2 * time.Hour)
	if got := b.ids(t, &ec2.DescribeInstancesInput{}); len(got) != 11 {
		t.Errorf("two hours later there are %d machines: the terminated one must be gone", len(got))
	}
}

func TestDescribeInstancesRefuses(t *testing.T) {
	b := newBench(t, Options{})
	m := b.run(t, Machine{})
	for _, test := range []struct {
		in            *ec2.DescribeInstancesInput
		code, message string
	}{
		{&ec2.DescribeInstancesInput{InstanceIds: []string{m.ID, "i-00000000"}}, "InvalidInstanceID.NotFound", "The instance ID 'i-00000000' does not exist"},
		{&ec2.DescribeInstancesInput{InstanceIds: []string{"i-00000000", "i-00000001"}}, "InvalidInstanceID.NotFound", "The instance IDs 'i-00000000, i-00000001' do not exist"},
		{&ec2.DescribeInstancesInput{InstanceIds: []string{"web"}}, "InvalidInstanceID.Malformed", `Invalid id: "web"`},
		{&ec2.DescribeInstancesInput{MaxResults: aws.Int32(4)}, "InvalidParameterValue", ""},
		{&ec2.DescribeInstancesInput{MaxResults: aws.Int32(5), InstanceIds: []string{m.ID}}, "InvalidParameterCombination", ""},
		{&ec2.DescribeInstancesInput{Filters: []types.Filter{where("color", "red")}}, "InvalidParameterValue", "The filter 'color' is invalid"},
	} {
		_, err := b.ec2.DescribeInstances(t.Context(), test.in)
		wantCode(t, err, test.code, test.message)
	}
}

func TestInstancePages(t *testing.T) {
	b := newBench(t, Options{})
	for range 23 {
		b.run(t, Machine{})
	}
	p := ec2.NewDescribeInstancesPaginator(b.ec2, &ec2.DescribeInstancesInput{MaxResults: aws.Int32(5)})
	pages, seen := 0, map[string]bool{}
	for p.HasMorePages() {
		out, err := p.NextPage(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		pages++
		for _, r := range out.Reservations {
			seen[*r.Instances[0].InstanceId] = true
		}
	}
	if pages != 5 || len(seen) != 23 {
		t.Errorf("%d machines in %d pages, want 23 in 5", len(seen), pages)
	}
}

func TestReadsLag(t *testing.T) {
	b := newBench(t, Options{EC2: EC2Options{Lag: 3 * time.Second}})
	m := b.run(t, Machine{})
	if got := b.ids(t, &ec2.DescribeInstancesInput{}); len(got) != 0 {
		t.Errorf("a new machine is seen at once")
	}
	b.pass(3 * time.Second)
	b.account.EC2().Terminate(m.ID)
	running := &ec2.DescribeInstancesInput{Filters: []types.Filter{where("instance-state-name", "running")}}
	if got := b.ids(t, running); len(got) != 1 {
		t.Errorf("the end of a machine is seen at once")
	}
	b.pass(3 * time.Second)
	if got := b.ids(t, running); len(got) != 0 {
		t.Errorf("the end of a machine is not seen after the lag")
	}
}

func TestVolumes(t *testing.T) {
	b := newBench(t, Options{})
	m := b.run(t, Machine{Zone: "us-west-2a"})
	other := b.run(t, Machine{Zone: "us-west-2b"})
	v := b.account.EC2().CreateVolume("us-west-2a", 8, map[string]string{"EtcdMember": "a"})
	attach := func(instance string) string {
		_, err := b.account.EC2().AttachVolume(v.ID, instance, "/dev/sdf")
		if err == nil {
			return "ok"
		}
		return refusal(err).Code
	}
	if got, want := []string{attach(other.ID), attach(m.ID), attach(m.ID)}, []string{"InvalidVolume.ZoneMismatch", "ok", "VolumeInUse"}; !slices.Equal(got, want) {
		t.Errorf("attaching in another zone, in the volume's zone, twice: %q, want %q", got, want)
	}
	in := &ec2.DescribeVolumesInput{Filters: []types.Filter{where("tag:EtcdMember", "a"), where("status", "in-use")}}
	out, err := b.ec2.DescribeVolumes(t.Context(), in)
	if err != nil || len(out.Volumes) != 1 || *out.Volumes[0].Attachments[0].InstanceId != m.ID {
		t.Fatalf("the volumes are %v, %v", out, err)
	}
	b.account.EC2().Terminate(m.ID)
	if out, err = b.ec2.DescribeVolumes(t.Context(), in); err != nil || len(out.Volumes) != 0 {
		t.Errorf("the volume is not free after its machine's end: %v, %v", out, err)
	}
	_, err = b.ec2.DescribeVolumes(t.Context(), &ec2.DescribeVolumesInput{VolumeIds: []string{"vol-01234567"}})
	wantCode(t, err, "InvalidVolume.NotFound", "The volume 'vol-01234567' does not exist.")
}

// run starts a machine.
func (b *bench) run(t *testing.T, m Machine) Machine {
	t.Helper()
	m, err := b.account.EC2().Run(m)
	if err != nil {
		t.Fatal(err)
	}
	return m
}
