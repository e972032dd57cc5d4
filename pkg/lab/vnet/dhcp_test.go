package vnet

import (
	"net"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/insomniacslk/dhcp/dhcpv4"
	"gvisor.dev/gvisor/pkg/tcpip/checksum"
	"gvisor.dev/gvisor/pkg/tcpip/header"
)

// ask sends a DHCP message and returns the answer, and the address that it was sent to.
func ask(t *testing.T, w *wire, from mac, m *dhcpv4.DHCPv4, src string) (*dhcpv4.DHCPv4, string) {
	t.Helper()
	if err := w.send(datagram(from, broadcastMAC, src+":68", "255.255.255.255:67", string(m.ToBytes()))); err != nil {
		t.Fatal(err)
	}
	frame, err := w.receive()
	if err != nil {
		t.Fatal(err)
	}
	eth, ip := header.Ethernet(frame), header.IPv4(frame[header.EthernetMinimumSize:])
	if mac(frame[:6]) != from || eth.SourceAddress().String() != net.HardwareAddr(gatewayMAC[:]).String() {
		t.Errorf("answer from %s to %s", eth.SourceAddress(), eth.DestinationAddress())
	}
	u := header.UDP(ip.Payload())
	payload := func() uint16 { return checksum.Checksum(u.Payload(), 0) }
	if length, sum := header.UDPValid(u, payload, uint16(len(u.Payload())), header.IPv4ProtocolNumber, ip.SourceAddress(), ip.DestinationAddress(), false); !length || !sum || !ip.IsChecksumValid() {
		t.Errorf("answer with a wrong length or checksum: %v %v", length, sum)
	}
	answer, err := dhcpv4.FromBytes(u.Payload())
	if err != nil {
		t.Fatal(err)
	}
	return answer, ip.DestinationAddress().String()
}

func TestLease(t *testing.T) {
	n := newNetwork(t, Config{MTU: 8500, Domain: "eu-central-1.compute.internal", Search: []string{"demo.k8s"}})
	p := attach(t, n, "a", "10.1.0.10")
	w := plug(t, p)
	discover, err := dhcpv4.NewDiscovery(p.machine.MAC)
	if err != nil {
		t.Fatal(err)
	}
	offer, to := ask(t, w, p.mac, discover, "0.0.0.0")
	if offer.MessageType() != dhcpv4.MessageTypeOffer || to != "255.255.255.255" {
		t.Errorf("%s to %s", offer.MessageType(), to)
	}
	request, err := dhcpv4.NewRequestFromOffer(offer)
	if err != nil {
		t.Fatal(err)
	}
	ack, _ := ask(t, w, p.mac, request, "0.0.0.0")
	type lease struct {
		Kind                                     string
		Address, Mask, Router, DNS, Host, Domain string
		Search                                   []string
		MTU                                      []byte
		Seconds                                  float64
	}
	got := lease{
		ack.MessageType().String(), ack.YourIPAddr.String(), net.IP(ack.SubnetMask()).String(), ack.Router()[0].String(), ack.DNS()[0].String(),
		ack.HostName(), ack.DomainName(), ack.DomainSearch().Labels, ack.Options.Get(dhcpv4.OptionInterfaceMTU), ack.IPAddressLeaseTime(0).Seconds(),
	}
	want := lease{
		"ACK", "10.1.0.10", "255.255.255.0", "10.1.0.1", "10.1.0.2", "ip-10-1-0-10", "eu-central-1.compute.internal",
		[]string{"eu-central-1.compute.internal", "demo.k8s"}, []byte{8500 >> 8, 8500 & 0xff}, 86400,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("lease (-want +got):\n%s", diff)
	}
	renew, err := dhcpv4.NewRenewFromAck(ack)
	if err != nil {
		t.Fatal(err)
	}
	if again, to := ask(t, w, p.mac, renew, "10.1.0.10"); again.MessageType() != dhcpv4.MessageTypeAck || to != "10.1.0.10" {
		t.Errorf("renewing: %s to %s", again.MessageType(), to)
	}
	other, err := dhcpv4.NewDiscovery(p.machine.MAC, dhcpv4.WithMessageType(dhcpv4.MessageTypeRequest),
		dhcpv4.WithOption(dhcpv4.OptRequestedIPAddress(net.IPv4(10, 1, 0, 77))))
	if err != nil {
		t.Fatal(err)
	}
	if nak, _ := ask(t, w, p.mac, other, "0.0.0.0"); nak.MessageType() != dhcpv4.MessageTypeNak {
		t.Errorf("another's address: %s", nak.MessageType())
	}
	inform, err := dhcpv4.NewInform(p.machine.MAC, net.IPv4(10, 1, 0, 10))
	if err != nil {
		t.Fatal(err)
	}
	if ack, _ := ask(t, w, p.mac, inform, "10.1.0.10"); !ack.YourIPAddr.IsUnspecified() || ack.HostName() != "ip-10-1-0-10" {
		t.Errorf("informed of %s %s", ack.YourIPAddr, ack.HostName())
	}
}

// TestNoLease sends requests that must not be answered, and then valid ones.
func TestNoLease(t *testing.T) {
	n := newNetwork(t, Config{})
	p := attach(t, n, "a", "10.1.0.10")
	w := plug(t, p)
	message := func(hw net.HardwareAddr, mods ...dhcpv4.Modifier) string {
		m, err := dhcpv4.NewDiscovery(hw, mods...)
		if err != nil {
			t.Fatal(err)
		}
		return string(m.ToBytes())
	}
	own := p.machine.MAC
	for _, payload := range []string{
		"", "nonsense",
		message(MACOf(netip.MustParseAddr("10.1.0.11"))),
		message(own, dhcpv4.WithMessageType(dhcpv4.MessageTypeRelease)),
		message(own, dhcpv4.WithMessageType(dhcpv4.MessageTypeRequest), dhcpv4.WithOption(dhcpv4.OptServerIdentifier(net.IPv4(10, 1, 0, 9)))),
	} {
		if err := w.send(datagram(p.mac, broadcastMAC, "0.0.0.0:68", "255.255.255.255:67", payload)); err != nil {
			t.Fatal(err)
		}
	}
	discover, err := dhcpv4.NewDiscovery(own)
	if err != nil {
		t.Fatal(err)
	}
	offer, _ := ask(t, w, p.mac, discover, "0.0.0.0")
	if offer.TransactionID != discover.TransactionID {
		t.Errorf("answered to something else: %s", offer.Summary())
	}
	if sent := p.Stats().Sent; sent != 1 {
		t.Errorf("%d answers, want 1", sent)
	}
}
