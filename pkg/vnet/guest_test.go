package vnet

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"net/netip"
	"sync"
	"testing"

	"gvisor.dev/gvisor/pkg/buffer"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/link/channel"
	"gvisor.dev/gvisor/pkg/tcpip/link/ethernet"
	"gvisor.dev/gvisor/pkg/tcpip/network/arp"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/icmp"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
	"gvisor.dev/gvisor/pkg/tcpip/transport/udp"
)

// newNetwork brings up a network that is down again at the end of the test.
func newNetwork(t testing.TB, c Config) *Network {
	t.Helper()
	n, err := New(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	})
	return n
}

// attach makes a port for a machine with the address.
func attach(t testing.TB, n *Network, name, addr string) *Port {
	t.Helper()
	p, err := n.Attach(Machine{Name: name, Addr: netip.MustParseAddr(addr)})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// wire is what QEMU has of a port: a stream of frames.
type wire struct {
	net.Conn
	mu sync.Mutex
}

// plug connects as QEMU does.
func plug(t testing.TB, p *Port) *wire {
	t.Helper()
	before := p.Stats().Connects
	conn, err := net.Dial("unix", p.Socket())
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the port to notice", func() bool { return p.Stats().Connects > before })
	t.Cleanup(func() { _ = conn.Close() })
	return &wire{Conn: conn}
}

func (w *wire) send(frame []byte) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	_, err := w.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(frame))), frame...))
	return err
}

func (w *wire) receive() ([]byte, error) {
	var size [4]byte
	if _, err := io.ReadFull(w, size[:]); err != nil {
		return nil, err
	}
	frame := make([]byte, binary.BigEndian.Uint32(size[:]))
	_, err := io.ReadFull(w, frame)
	return frame, err
}

// guest is a machine: a TCP/IP stack of its own behind a port, with the port's address, and the gateway as its router.
type guest struct {
	stack *stack.Stack
	addr  netip.Addr
}

// newGuest plugs a machine in.
func newGuest(t testing.TB, n *Network, p *Port) *guest {
	t.Helper()
	w := plug(t, p)
	link := channel.New(1024, uint32(n.MTU()+header.EthernetMinimumSize), tcpip.LinkAddress(p.machine.MAC))
	s := stack.New(stack.Options{
		NetworkProtocols:   []stack.NetworkProtocolFactory{ipv4.NewProtocol, arp.NewProtocol},
		TransportProtocols: []stack.TransportProtocolFactory{tcp.NewProtocol, udp.NewProtocol, icmp.NewProtocol4},
	})
	if err := s.CreateNIC(nic, ethernet.New(link)); err != nil {
		t.Fatal(err)
	}
	address := tcpip.AddressWithPrefix{Address: tcpip.AddrFrom4(p.machine.Addr.As4()), PrefixLen: n.Subnet().Bits()}
	if err := s.AddProtocolAddress(nic, tcpip.ProtocolAddress{Protocol: ipv4.ProtocolNumber, AddressWithPrefix: address}, stack.AddressProperties{}); err != nil {
		t.Fatal(err)
	}
	s.SetRouteTable([]tcpip.Route{
		{Destination: address.Subnet(), NIC: nic},
		{Destination: header.IPv4EmptySubnet, Gateway: tcpip.AddrFrom4(n.Gateway().As4()), NIC: nic},
	})
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var tasks sync.WaitGroup
	tasks.Go(func() {
		for pkt := link.ReadContext(ctx); pkt != nil; pkt = link.ReadContext(ctx) {
			b := pkt.ToBuffer()
			_ = w.send(b.Flatten())
			b.Release()
			pkt.DecRef()
		}
	})
	tasks.Go(func() {
		for {
			frame, err := w.receive()
			if err != nil {
				return
			}
			pkt := stack.NewPacketBuffer(stack.PacketBufferOptions{Payload: buffer.MakeWithData(frame)})
			link.InjectInbound(0, pkt)
			pkt.DecRef()
		}
	})
	t.Cleanup(func() {
		s.Destroy()
		cancel()
		_ = w.Close()
		tasks.Wait()
		link.Close()
	})
	return &guest{stack: s, addr: p.machine.Addr}
}

func (g *guest) dial(ctx context.Context, to string) (net.Conn, error) {
	return gonet.DialContextTCP(ctx, g.stack, fullAddress(netip.MustParseAddrPort(to)), ipv4.ProtocolNumber)
}

func (g *guest) listen(t testing.TB, port uint16) net.Listener {
	t.Helper()
	l, err := gonet.ListenTCP(g.stack, fullAddress(netip.AddrPortFrom(g.addr, port)), ipv4.ProtocolNumber)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		l.Shutdown()
		_ = l.Close()
	})
	return l
}

func (g *guest) dialUDP(t testing.TB, to string) net.Conn {
	t.Helper()
	remote := fullAddress(netip.MustParseAddrPort(to))
	conn, err := gonet.DialUDP(g.stack, nil, &remote, ipv4.ProtocolNumber)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}
