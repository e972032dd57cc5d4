package vnet

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"gvisor.dev/gvisor/pkg/tcpip/header"
)

// TestOutsideIsRefused tries the outside in every way and looks for the count.
func TestOutsideIsRefused(t *testing.T) {
	n := newNetwork(t, Config{})
	g := newGuest(t, n, attach(t, n, "a", "10.1.0.10"))
	for _, to := range []string{"192.0.2.1:443", "10.2.0.1:22", "169.254.169.123:80"} {
		conn, err := g.dial(within(t), to)
		if err == nil {
			_ = conn.Close()
		}
		if err == nil || !strings.Contains(err.Error(), "connection was refused") {
			t.Errorf("%s: got %v, want refused", to, err)
		}
	}
	conn := g.dialUDP(t, "192.0.2.7:123")
	if _, err := conn.Write([]byte("what time is it?")); err != nil {
		t.Fatal(err)
	}
	// Its answer is TestReject's matter: the machine's stack here does not know ICMP's code 13, Linux does.
	eventually(t, "the datagram", func() bool { return len(n.Refused()) == 4 })
	type short struct {
		dst, proto     string
		packets, bytes int64
	}
	var got []short
	for _, a := range n.Refused() {
		if a.Machine != "a" || a.First.IsZero() {
			t.Errorf("attempt %+v", a)
		}
		bytes := a.Bytes
		if a.Proto == "tcp" {
			bytes = 0 // as many as the stack has options
		}
		got = append(got, short{a.Dst.String(), a.Proto, a.Packets, bytes})
	}
	want := []short{{"192.0.2.1:443", "tcp", 1, 0}, {"10.2.0.1:22", "tcp", 1, 0}, {"169.254.169.123:80", "tcp", 1, 0}, {"192.0.2.7:123", "udp", 1, 28 + 16}}
	if !slices.Equal(got, want) {
		t.Errorf("refused %v, want %v", got, want)
	}
}

func TestRefusalsAreBounded(t *testing.T) {
	var r refusals
	for i := range maxAttempts + 10 {
		r.add("a", "udp", netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 0, byte(i >> 8), byte(i)}), 9), 100)
	}
	all := r.list()
	if last := all[len(all)-1]; len(all) != maxAttempts+1 || last.Dst.String() != "0.0.0.0:0" || last.Packets != 10 || last.Bytes != 1000 {
		t.Errorf("%d attempts, the last %+v", len(all), last)
	}
}

// TestReject looks at the packets by which a sender learns that it was refused.
func TestReject(t *testing.T) {
	n := newNetwork(t, Config{})
	p := attach(t, n, "a", "10.1.0.10")
	w := plug(t, p)
	frame := datagram(p.mac, gatewayMAC, "10.1.0.10:9", "192.0.2.1:53", "question")
	if err := w.send(frame); err != nil {
		t.Fatal(err)
	}
	got, err := w.receive()
	if err != nil {
		t.Fatal(err)
	}
	ip := header.IPv4(got[header.EthernetMinimumSize:])
	icmp := header.ICMPv4(ip.Payload())
	if !ip.IsChecksumValid() || ip.SourceAddress().String() != "10.1.0.1" || icmp.Type() != header.ICMPv4DstUnreachable || icmp.Code() != header.ICMPv4AdminProhibited {
		t.Errorf("from %s: type %d code %d, checksum %v", ip.SourceAddress(), icmp.Type(), icmp.Code(), ip.IsChecksumValid())
	}
	if header.ICMPv4Checksum(icmp[:header.ICMPv4MinimumSize], 0) == 0 {
		t.Error("no checksum")
	}
}

// TestServiceFaults has a service look refused and silent to one machine and not to the other.
func TestServiceFaults(t *testing.T) {
	n := newNetwork(t, Config{})
	port := attach(t, n, "a", "10.1.0.10")
	a := newGuest(t, n, port)
	b := newGuest(t, n, attach(t, n, "b", "10.1.0.11"))
	address := netip.MustParseAddrPort("169.254.169.254:80")
	service, err := n.Listen(address)
	if err != nil {
		t.Fatal(err)
	}
	go echo(service)
	port.SetFault(address, Refusing)
	if _, err := a.dial(within(t), address.String()); err == nil || !strings.Contains(err.Error(), "connection was refused") {
		t.Errorf("refusing: %v", err)
	}
	conn, err := b.dial(within(t), address.String())
	if err != nil {
		t.Errorf("the other machine: %v", err)
	} else {
		call(t, conn, "x")
	}
	port.SetFault(address, Silent)
	late := make(chan error, 1)
	go func() {
		conn, err := a.dial(within(t), address.String())
		if err == nil {
			_ = conn.Close()
		}
		late <- err
	}()
	received := port.Stats().Received
	eventually(t, "the first attempt", func() bool { return port.Stats().Received > received })
	select {
	case err := <-late:
		t.Errorf("silent: %v", err)
	default:
	}
	port.SetFault(address, None)
	if err := <-late; err != nil {
		t.Errorf("late: %v", err)
	}
	if got := n.Refused(); len(got) != 0 {
		t.Errorf("refused to the outside: %v", got)
	}
}
