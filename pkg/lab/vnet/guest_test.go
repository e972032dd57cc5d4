package vnet

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
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

// newNetwork starts a network that is closed at the end of the test.
func newNetwork(tb testing.TB, c Config) *Network {
	tb.Helper()
	n, err := New(tb.Context(), c)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := n.Close(); err != nil {
			tb.Error(err)
		}
	})
	return n
}

// attach makes a port for a machine with the address.
func attach(tb testing.TB, n *Network, name, addr string) *Port {
	tb.Helper()
	p, err := n.Attach(Machine{Name: name, Addr: netip.MustParseAddr(addr)})
	if err != nil {
		tb.Fatal(err)
	}
	return p
}

// wire is QEMU's side of a port: a stream of frames.
type wire struct {
	net.Conn
	mu sync.Mutex
}

// plug connects as QEMU does.
func plug(tb testing.TB, p *Port) *wire {
	tb.Helper()
	before := p.Stats().Connects
	conn, err := net.Dial("unix", p.Socket())
	if err != nil {
		tb.Fatal(err)
	}
	eventually(tb, "the port to notice", func() bool { return p.Stats().Connects > before })
	tb.Cleanup(func() { _ = conn.Close() })
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

// guest is a machine: a TCP/IP stack behind a port, with the port's address, and the gateway as its router.
type guest struct {
	stack *stack.Stack
	addr  netip.Addr
	// watch, when set, sees every frame that arrives.
	watch atomic.Pointer[func([]byte)]
}

// newGuest plugs a machine in.
func newGuest(tb testing.TB, n *Network, p *Port) *guest {
	tb.Helper()
	w := plug(tb, p)
	link := channel.New(1024, uint32(n.MTU()+header.EthernetMinimumSize), tcpip.LinkAddress(p.machine.MAC))
	s := stack.New(stack.Options{
		NetworkProtocols:   []stack.NetworkProtocolFactory{ipv4.NewProtocol, arp.NewProtocol},
		TransportProtocols: []stack.TransportProtocolFactory{tcp.NewProtocol, udp.NewProtocol, icmp.NewProtocol4},
	})
	if err := s.CreateNIC(nic, ethernet.New(link)); err != nil {
		tb.Fatal(err)
	}
	address := tcpip.AddressWithPrefix{Address: tcpip.AddrFrom4(p.machine.Addr.As4()), PrefixLen: n.Subnet().Bits()}
	if err := s.AddProtocolAddress(nic, tcpip.ProtocolAddress{Protocol: ipv4.ProtocolNumber, AddressWithPrefix: address}, stack.AddressProperties{}); err != nil {
		tb.Fatal(err)
	}
	s.SetRouteTable([]tcpip.Route{
		{Destination: address.Subnet(), NIC: nic},
		{Destination: header.IPv4EmptySubnet, Gateway: tcpip.AddrFrom4(n.Gateway().As4()), NIC: nic},
	})
	g := &guest{stack: s, addr: p.machine.Addr}
	ctx, cancel := context.WithCancel(context.WithoutCancel(tb.Context()))
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
			if watch := g.watch.Load(); watch != nil {
				(*watch)(frame)
			}
			pkt := stack.NewPacketBuffer(stack.PacketBufferOptions{Payload: buffer.MakeWithData(frame)})
			link.InjectInbound(0, pkt)
			pkt.DecRef()
		}
	})
	tb.Cleanup(func() {
		s.Destroy()
		cancel()
		_ = w.Close()
		tasks.Wait()
		link.Close()
	})
	return g
}

func (g *guest) dial(ctx context.Context, to string) (net.Conn, error) {
	return gonet.DialContextTCP(ctx, g.stack, fullAddress(netip.MustParseAddrPort(to)), ipv4.ProtocolNumber)
}

func (g *guest) listen(tb testing.TB, port uint16) net.Listener {
	tb.Helper()
	l, err := gonet.ListenTCP(g.stack, fullAddress(netip.AddrPortFrom(g.addr, port)), ipv4.ProtocolNumber)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		l.Shutdown()
		_ = l.Close()
	})
	return l
}

func (g *guest) dialUDP(tb testing.TB, to string) net.Conn {
	tb.Helper()
	remote := fullAddress(netip.MustParseAddrPort(to))
	conn, err := gonet.DialUDP(g.stack, nil, &remote, ipv4.ProtocolNumber)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = conn.Close() })
	return conn
}
