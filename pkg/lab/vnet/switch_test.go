package vnet

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/header"
)

// datagram makes a frame with a UDP packet, from whomever to whomever.
func datagram(srcMAC, dstMAC mac, src, dst, payload string) []byte {
	from, to := netip.MustParseAddrPort(src), netip.MustParseAddrPort(dst)
	u := header.UDP(make([]byte, header.UDPMinimumSize+len(payload)))
	copy(u[header.UDPMinimumSize:], payload)
	u.Encode(&header.UDPFields{SrcPort: from.Port(), DstPort: to.Port(), Length: uint16(len(u))}) // no checksum, which is allowed
	p := &Port{mac: dstMAC}
	frame := p.frameTo(tcpip.AddrFrom4(from.Addr().As4()), tcpip.AddrFrom4(to.Addr().As4()), header.UDPProtocolNumber, u)
	copy(frame[6:12], srcMAC[:])
	return frame
}

// arpFrame is a question for who has an address, or an answer.
func arpFrame(ethSrc, dst, sender mac, op header.ARPOp, senderIP, targetIP string) []byte {
	frame := make([]byte, header.EthernetMinimumSize+header.ARPSize)
	header.Ethernet(frame).Encode(&header.EthernetFields{
		SrcAddr: tcpip.LinkAddress(ethSrc[:]), DstAddr: tcpip.LinkAddress(dst[:]), Type: header.ARPProtocolNumber,
	})
	a := header.ARP(frame[header.EthernetMinimumSize:])
	a.SetIPv4OverEthernet()
	a.SetOp(op)
	copy(a.HardwareAddressSender(), sender[:])
	copy(a.ProtocolAddressSender(), netip.MustParseAddr(senderIP).AsSlice())
	copy(a.ProtocolAddressTarget(), netip.MustParseAddr(targetIP).AsSlice())
	return frame
}

// eventually waits until a condition that depends on other goroutines is true.
func eventually(tb testing.TB, what string, done func() bool) {
	tb.Helper()
	ctx := within(tb)
	for !done() {
		select {
		case <-ctx.Done():
			tb.Fatalf("waited in vain for %s", what)
		case <-time.After(time.Millisecond):
		}
	}
}

// TestOnlyOwnAddresses sends frames that must not arrive, and after each kind one that must.
func TestOnlyOwnAddresses(t *testing.T) {
	n := newNetwork(t, Config{})
	a, b := attach(t, n, "a", "10.1.0.10"), attach(t, n, "b", "10.1.0.11")
	from, to := plug(t, a), plug(t, b)
	other := mac{6, 0, 10, 1, 0, 99}
	long := strings.Repeat("x", n.MTU())
	cases := map[string]struct {
		frame []byte
		count func(Stats) int64
	}{
		"another's MAC":           {datagram(b.mac, b.mac, "10.1.0.10:9", "10.1.0.11:9", "x"), spoofed},
		"another's address":       {datagram(a.mac, b.mac, "10.1.0.11:9", "10.1.0.11:9", "x"), spoofed},
		"an address of nobody":    {datagram(a.mac, b.mac, "10.244.1.7:9", "10.1.0.11:9", "x"), spoofed},
		"no address":              {datagram(a.mac, b.mac, "0.0.0.0:9", "10.1.0.11:9", "x"), spoofed},
		"to be routed by a peer":  {datagram(a.mac, b.mac, "10.1.0.10:9", "10.244.1.7:9", "x"), spoofed},
		"ARP for another":         {arpFrame(a.mac, b.mac, a.mac, header.ARPReply, "10.1.0.1", "10.1.0.11"), spoofed},
		"ARP with another's MAC":  {arpFrame(a.mac, b.mac, other, header.ARPReply, "10.1.0.10", "10.1.0.11"), spoofed},
		"multicast":               {datagram(a.mac, mac{1, 0, 0x5e, 0, 0, 0xfb}, "10.1.0.10:9", "224.0.0.251:5353", "x"), foreign},
		"IPv6":                    {append(slices.Concat(b.mac[:], a.mac[:], []byte{0x86, 0xdd}), make([]byte, 40)...), foreign},
		"cut short":               {a.mac[:], foreign},
		"half an IP header":       {append(slices.Concat(b.mac[:], a.mac[:], []byte{0x08, 0x00}), 0x45, 0), foreign},
		"half an ARP":             {append(slices.Concat(b.mac[:], a.mac[:], []byte{0x08, 0x06}), 0, 1), foreign},
		"longer than the MTU":     {datagram(a.mac, b.mac, "10.1.0.10:9", "10.1.0.11:9", long), foreign},
		"nothing":                 {nil, foreign},
		"a length that is no UDP": {append(slices.Concat(gatewayMAC[:], a.mac[:], []byte{0x08, 0x00}), make([]byte, 20)...), foreign},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			before := c.count(a.Stats())
			if err := from.send(c.frame); err != nil {
				t.Fatal(err)
			}
			good := datagram(a.mac, b.mac, "10.1.0.10:9", "10.1.0.11:9", "after "+name)
			if err := from.send(good); err != nil {
				t.Fatal(err)
			}
			if got, err := to.receive(); err != nil || !bytes.Equal(got, good) {
				t.Errorf("received %q, %v", got, err)
			}
			if got := c.count(a.Stats()) - before; got != 1 {
				t.Errorf("counted %d, want 1: %+v", got, a.Stats())
			}
		})
	}
}

func spoofed(s Stats) int64 { return s.Spoofed }
func foreign(s Stats) int64 { return s.Foreign }

// TestMTU carries a frame of exactly the MTU.
func TestMTU(t *testing.T) {
	n := newNetwork(t, Config{MTU: 1500})
	a, b := attach(t, n, "a", "10.1.0.10"), attach(t, n, "b", "10.1.0.11")
	from, to := plug(t, a), plug(t, b)
	frame := datagram(a.mac, b.mac, "10.1.0.10:9", "10.1.0.11:9", strings.Repeat("x", 1500-28))
	if err := from.send(frame); err != nil {
		t.Fatal(err)
	}
	if got, err := to.receive(); err != nil || !bytes.Equal(got, frame) {
		t.Errorf("received %d bytes, %v, want %d", len(got), err, len(frame))
	}
}

// TestStoppedMachine has a machine that does not read: it loses frames, and does not block the others.
func TestStoppedMachine(t *testing.T) {
	n := newNetwork(t, Config{})
	a, b, c := attach(t, n, "a", "10.1.0.10"), attach(t, n, "b", "10.1.0.11"), attach(t, n, "c", "10.1.0.12")
	from, to := plug(t, a), plug(t, b)
	_ = plug(t, c)
	payload := strings.Repeat("x", 8000)
	for range 4 * queueLength {
		if err := from.send(datagram(a.mac, c.mac, "10.1.0.10:9", "10.1.0.12:9", payload)); err != nil {
			t.Fatal(err)
		}
	}
	good := datagram(a.mac, b.mac, "10.1.0.10:9", "10.1.0.11:9", "passes")
	if err := from.send(good); err != nil {
		t.Fatal(err)
	}
	if got, err := to.receive(); err != nil || !bytes.Equal(got, good) {
		t.Errorf("received %q, %v", got, err)
	}
	if lost := c.Stats().Lost; lost == 0 {
		t.Error("no frame was lost")
	}
}

// TestConnectsAgain starts a machine's process anew: the newest connection is the machine.
func TestConnectsAgain(t *testing.T) {
	n := newNetwork(t, Config{})
	a, b := attach(t, n, "a", "10.1.0.10"), attach(t, n, "b", "10.1.0.11")
	from := plug(t, a)
	old := plug(t, b)
	frame := datagram(a.mac, b.mac, "10.1.0.10:9", "10.1.0.11:9", "x")
	if err := from.send(frame); err != nil {
		t.Fatal(err)
	}
	if _, err := old.receive(); err != nil {
		t.Fatal(err)
	}
	now := plug(t, b)
	if _, err := old.receive(); err == nil {
		t.Error("the old connection is still there")
	}
	// Frames sent before the new connection is noticed are lost, as while a machine boots.
	got := make(chan []byte, 1)
	go func() {
		frame, _ := now.receive()
		got <- frame
	}()
	eventually(t, "a frame by the new connection", func() bool {
		if err := from.send(frame); err != nil {
			t.Fatal(err)
		}
		return len(got) > 0
	})
}

func TestAttachRefuses(t *testing.T) {
	n := newNetwork(t, Config{})
	attach(t, n, "a", "10.1.0.10")
	addr := netip.MustParseAddr
	cases := map[string]struct {
		machine Machine
		want    string
	}{
		"no name":        {Machine{Addr: addr("10.1.0.11")}, "no name"},
		"no address":     {Machine{Name: "b"}, "is not in 10.1.0.0/24"},
		"IPv6":           {Machine{Name: "b", Addr: addr("fd00::1")}, "is not in 10.1.0.0/24"},
		"elsewhere":      {Machine{Name: "b", Addr: addr("10.2.0.11")}, "is not in 10.1.0.0/24"},
		"gateway":        {Machine{Name: "b", Addr: addr("10.1.0.1")}, "reserved"},
		"endpoints":      {Machine{Name: "b", Addr: addr("10.1.0.3")}, "reserved"},
		"network":        {Machine{Name: "b", Addr: addr("10.1.0.0")}, "reserved"},
		"broadcast":      {Machine{Name: "b", Addr: addr("10.1.0.255")}, "reserved"},
		"same name":      {Machine{Name: "a", Addr: addr("10.1.0.11")}, "is attached already"},
		"same address":   {Machine{Name: "b", Addr: addr("10.1.0.10")}, "address already in use"},
		"same MAC":       {Machine{Name: "b", Addr: addr("10.1.0.11"), MAC: MACOf(addr("10.1.0.10"))}, "is attached already"},
		"a group's MAC":  {Machine{Name: "b", Addr: addr("10.1.0.11"), MAC: net.HardwareAddr{1, 2, 3, 4, 5, 6}}, "not the address of one machine"},
		"gateway's MAC":  {Machine{Name: "b", Addr: addr("10.1.0.11"), MAC: gatewayMAC[:]}, "not the address of one machine"},
		"bad host name":  {Machine{Name: "b", Addr: addr("10.1.0.11"), Hostname: "a.b"}, "not a DNS label"},
		"same host name": {Machine{Name: "b", Addr: addr("10.1.0.11"), Hostname: HostnameOf(addr("10.1.0.10"))}, "is attached already"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if _, err := n.Attach(c.machine); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

func TestConfigRefuses(t *testing.T) {
	cases := map[string]struct {
		config Config
		want   string
	}{
		"IPv6":       {Config{Subnet: netip.MustParsePrefix("fd00::/64")}, "is not an IPv4 network"},
		"too small":  {Config{Subnet: netip.MustParsePrefix("10.1.0.0/29")}, "at least 16"},
		"an address": {Config{Subnet: netip.MustParsePrefix("10.1.0.5/24")}, "is not an IPv4 network"},
		"MTU":        {Config{MTU: 70000}, "MTU 70000"},
		"directory":  {Config{Dir: "/" + strings.Repeat("x", 100)}, "a shorter directory"},
		"domain":     {Config{Domain: "a..b"}, "not a DNS name"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if _, err := New(t.Context(), c.config); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

// TestEndsWithContext cancels while everything is in use; goleak looks for leaked goroutines.
func TestEndsWithContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	n, err := New(ctx, Config{})
	if err != nil {
		t.Fatal(err)
	}
	port := attach(t, n, "a", "10.1.0.10")
	g := newGuest(t, n, port)
	service, err := n.Listen(netip.MustParseAddrPort("169.254.169.254:80"))
	if err != nil {
		t.Fatal(err)
	}
	accepted := make(chan error, 1)
	go func() {
		if _, err := service.Accept(); err != nil {
			accepted <- err
			return
		}
		_, err := service.Accept()
		accepted <- err
	}()
	conn, err := g.dial(within(t), "169.254.169.254:80")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	go echo(g.listen(t, 7))
	addr, err := n.Forward(ctx, "127.0.0.1:0", To(netip.MustParseAddrPort("10.1.0.10:7")))
	if err != nil {
		t.Fatal(err)
	}
	forwarded, err := net.Dial("tcp", addr.String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = forwarded.Close() }()
	if _, err := forwarded.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := <-accepted; !errors.Is(err, net.ErrClosed) {
		t.Errorf("Accept ended with %v", err)
	}
	eventually(t, "the forwarded connection's end", func() bool {
		_, err := forwarded.Read(make([]byte, 100))
		return err != nil
	})
	if err := n.Close(); err != nil {
		t.Error(err)
	}
	eventually(t, "the directory's end", func() bool {
		_, err := os.Stat(n.tmp)
		return errors.Is(err, os.ErrNotExist)
	})
	if _, err := n.Attach(Machine{Name: "b", Addr: netip.MustParseAddr("10.1.0.11")}); err == nil {
		t.Error("attached to a network that is closed")
	}
	if _, err := n.Listen(netip.MustParseAddrPort("10.1.0.3:80")); err == nil {
		t.Error("listening on a network that is closed")
	}
}

// TestDetached gives an address to the next machine.
func TestDetached(t *testing.T) {
	n := newNetwork(t, Config{})
	p := attach(t, n, "a", "10.1.0.10")
	w := plug(t, p)
	if err := p.Detach(); err != nil {
		t.Fatal(err)
	}
	if _, err := w.receive(); err == nil {
		t.Error("still connected")
	}
	if _, ok := n.MachineAt(netip.MustParseAddr("10.1.0.10")); ok {
		t.Error("still known")
	}
	if _, err := n.Dial(within(t), netip.MustParseAddrPort("10.1.0.10:80")); err == nil || !strings.Contains(err.Error(), "no machine has this address") {
		t.Errorf("dialling: %v", err)
	}
	go echo(newGuest(t, n, attach(t, n, "b", "10.1.0.10")).listen(t, 7))
	conn, err := n.Dial(within(t), netip.MustParseAddrPort("10.1.0.10:7"))
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprint(conn, "x")
	_ = conn.Close()
}
