package fleet

import (
	"net/netip"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/hardtack/packer-plugin-hardtack/pkg/node/controller"
)

// addresses parses addresses.
func addresses(all ...string) (out []netip.Addr) {
	for _, a := range all {
		out = append(out, netip.MustParseAddr(a))
	}
	return out
}

type cards = []types.InstanceNetworkInterface

// card is a network card of an instance: its place, and its addresses of IPv6.
func card(place *int32, six ...string) types.InstanceNetworkInterface {
	out := types.InstanceNetworkInterface{}
	if place != nil {
		out.Attachment = &types.InstanceNetworkInterfaceAttachment{DeviceIndex: place}
	}
	for _, a := range six {
		out.Ipv6Addresses = append(out.Ipv6Addresses, types.InstanceIpv6Address{Ipv6Address: &a})
	}
	return out
}

// public is the public address of a card, or of one of its addresses.
func public(address string) *types.InstanceNetworkInterfaceAssociation {
	return &types.InstanceNetworkInterfaceAssociation{PublicIp: &address}
}

// An instance has every address of all of its cards, its main ones first and each once; and the name that EC2 gives, or the one that
// the first address makes (EC2 User Guide, "EC2 instance hostnames and domains").
func TestInstanceOf(t *testing.T) {
	id, ten := aws.String("i-1"), aws.String("10.0.0.1")
	for name, tt := range map[string]struct {
		in   types.Instance
		want controller.Instance
	}{
		"nothing": {types.Instance{InstanceId: id}, controller.Instance{ID: "i-1"}},
		"a name": {types.Instance{InstanceId: id, PrivateDnsName: aws.String("ip-10-0-0-9.ec2.internal"), PrivateIpAddress: ten},
			controller.Instance{ID: "i-1", Name: "ip-10-0-0-9.ec2.internal", Addresses: addresses("10.0.0.1")}},
		// The kubelet's name is in lower case, and one of the domains of the DHCP options.
		"a name in several domains": {types.Instance{InstanceId: id, PrivateDnsName: aws.String(" IP-10-0-0-9.Corp.example other.example")},
			controller.Instance{ID: "i-1", Name: "ip-10-0-0-9.corp.example"}},
		"no name": {types.Instance{InstanceId: id, PrivateDnsName: aws.String(""), PrivateIpAddress: ten},
			controller.Instance{ID: "i-1", Name: "ip-10-0-0-1", Addresses: addresses("10.0.0.1")}},
		"addresses": {types.Instance{InstanceId: id, PrivateIpAddress: ten, Ipv6Address: aws.String("fd00::1"),
			NetworkInterfaces: cards{
				{PrivateIpAddresses: []types.InstancePrivateIpAddress{{PrivateIpAddress: ten}, {PrivateIpAddress: aws.String("10.0.0.2")}, {}}},
				card(aws.Int32(1), "fd00::1", "fd00::2")}},
			controller.Instance{ID: "i-1", Name: "ip-10-0-0-1", Addresses: addresses("10.0.0.1", "fd00::1", "10.0.0.2", "fd00::2")}},
		// The cloud's controller writes them to the node, and the kubelet asks for a certificate with all that its node has.
		"public ones": {types.Instance{InstanceId: id, PrivateIpAddress: ten, PublicIpAddress: aws.String("198.51.100.1"),
			PublicDnsName: aws.String("ec2-198-51-100-1.compute-1.amazonaws.com"),
			NetworkInterfaces: cards{
				{Association: public("198.51.100.1")},
				{PrivateIpAddresses: []types.InstancePrivateIpAddress{{PrivateIpAddress: aws.String("10.0.0.2"), Association: public("198.51.100.2")}}}}},
			controller.Instance{ID: "i-1", Name: "ip-10-0-0-1", PublicName: "ec2-198-51-100-1.compute-1.amazonaws.com",
				Addresses: addresses("10.0.0.1", "10.0.0.2", "198.51.100.1", "198.51.100.2")}},
		"a public one alone, which names no machine": {types.Instance{InstanceId: id, PublicIpAddress: aws.String("198.51.100.1")},
			controller.Instance{ID: "i-1", Addresses: addresses("198.51.100.1")}},
	} {
		if d := cmp.Diff(tt.want, instanceOf(tt.in), cmpopts.EquateComparable(netip.Addr{})); d != "" {
			t.Errorf("%s (-want +got):\n%s", name, d)
		}
	}
}

// One that is stopped is neither running nor gone: it may start again.
func TestInstanceStates(t *testing.T) {
	for state, want := range map[types.InstanceStateName][2]bool{
		types.InstanceStateNamePending: {true, false}, types.InstanceStateNameRunning: {true, false},
		types.InstanceStateNameStopping: {false, false}, types.InstanceStateNameStopped: {false, false},
		types.InstanceStateNameShuttingDown: {false, true}, types.InstanceStateNameTerminated: {false, true},
	} {
		if got := instanceOf(types.Instance{State: &types.InstanceState{Name: state}}); [2]bool{got.Running, got.Gone} != want {
			t.Errorf("%s: running %t, gone %t, want %t", state, got.Running, got.Gone, want)
		}
	}
}

// The address of IPv6 is the instance's own, or the first of its first card: EC2 gives the former for some subnets only.
func TestMachineAddressesOfIPv6(t *testing.T) {
	for name, tt := range map[string]struct {
		own   string
		cards cards
		want  string
	}{
		"none":                    {},
		"its own":                 {own: "fd00::1", cards: cards{card(aws.Int32(0), "fd00::2")}, want: "fd00::1"},
		"the first card's":        {cards: cards{card(aws.Int32(0), "fd00::2", "fd00::3")}, want: "fd00::2"},
		"the first, listed last":  {cards: cards{card(aws.Int32(1), "fd00::4"), card(aws.Int32(0), "fd00::2")}, want: "fd00::2"},
		"the second card's alone": {cards: cards{card(aws.Int32(0)), card(aws.Int32(1), "fd00::4")}},
		"a card of no place":      {cards: cards{card(nil, "fd00::5")}},
	} {
		in := types.Instance{NetworkInterfaces: tt.cards}
		var want netip.Addr
		if tt.own != "" {
			in.Ipv6Address = &tt.own
		}
		if tt.want != "" {
			want = netip.MustParseAddr(tt.want)
		}
		if got := machineOf(in).private6; got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
}
