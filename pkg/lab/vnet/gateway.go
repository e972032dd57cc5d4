package vnet

import (
	"context"
	"fmt"
	"net/netip"
	"sync"

	"gvisor.dev/gvisor/pkg/buffer"
	"gvisor.dev/gvisor/pkg/tcpip"
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

var (
	// gatewayMAC is a locally administered address that MACOf never returns.
	gatewayMAC   = mac{0x06, 0xff, 'h', 't', 'g', 'w'}
	broadcastMAC = mac{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
)

// nic is the id of the gateway's only card.
const nic tcpip.NICID = 1

// gateway is the port of the lab's services: a TCP/IP stack inside the process.
type gateway struct {
	network *Network
	stack   *stack.Stack
	link    *channel.Endpoint
	cancel  context.CancelFunc

	mu    sync.RWMutex
	addrs map[netip.Addr]bool
}

func newGateway(ctx context.Context, n *Network) (*gateway, error) {
	g := &gateway{
		network: n,
		stack: stack.New(stack.Options{
			NetworkProtocols:   []stack.NetworkProtocolFactory{ipv4.NewProtocol, arp.NewProtocol},
			TransportProtocols: []stack.TransportProtocolFactory{tcp.NewProtocol, udp.NewProtocol, icmp.NewProtocol4},
		}),
		// The endpoint's MTU includes the Ethernet header.
		link:  channel.New(queueLength, uint32(n.config.MTU+header.EthernetMinimumSize), tcpip.LinkAddress(gatewayMAC[:])),
		addrs: map[netip.Addr]bool{},
	}
	if err := g.configure(); err != nil {
		g.stack.Destroy()
		return nil, err
	}
	// Not ctx itself: Close sends packets before the last frame.
	ctx, g.cancel = context.WithCancel(context.WithoutCancel(ctx))
	n.tasks.Go(func() { g.transmit(ctx) })
	return g, nil
}

func (g *gateway) configure() error {
	if err := g.stack.CreateNIC(nic, ethernet.New(g.link)); err != nil {
		return fmt.Errorf("making the gateway's card: %s", err)
	}
	b := g.network.config.Subnet.Addr().As4()
	subnet := tcpip.AddressWithPrefix{Address: tcpip.AddrFrom4(b), PrefixLen: g.network.config.Subnet.Bits()}
	g.stack.SetRouteTable([]tcpip.Route{{Destination: subnet.Subnet(), NIC: nic}})
	sack := tcpip.TCPSACKEnabled(true)
	if err := g.stack.SetTransportProtocolOption(tcp.ProtocolNumber, &sack); err != nil {
		return fmt.Errorf("setting up the gateway's TCP: %s", err)
	}
	for _, addr := range []netip.Addr{g.network.Gateway(), g.network.DNS()} {
		if err := g.assign(addr); err != nil {
			return err
		}
	}
	return nil
}

// assign adds an address to the gateway, unless it has it already.
func (g *gateway) assign(addr netip.Addr) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.addrs[addr] {
		return nil
	}
	err := g.stack.AddProtocolAddress(nic, tcpip.ProtocolAddress{
		Protocol:          ipv4.ProtocolNumber,
		AddressWithPrefix: tcpip.AddressWithPrefix{Address: tcpip.AddrFrom4(addr.As4()), PrefixLen: 32},
	}, stack.AddressProperties{})
	if err != nil {
		return fmt.Errorf("giving the gateway the address %s: %s", addr, err)
	}
	g.addrs[addr] = true
	return nil
}

// addNeighbor adds a machine to the stack's neighbour table, so that it need not use ARP.
func (g *gateway) addNeighbor(m Machine) error {
	err := g.stack.AddStaticNeighbor(nic, ipv4.ProtocolNumber, tcpip.AddrFrom4(m.Addr.As4()), tcpip.LinkAddress(m.MAC))
	if err != nil {
		return fmt.Errorf("telling the gateway: %s", err)
	}
	return nil
}

func (g *gateway) forget(m Machine) {
	// An error means that it is not there.
	_ = g.stack.RemoveNeighbor(nic, ipv4.ProtocolNumber, tcpip.AddrFrom4(m.Addr.As4()))
}

func (g *gateway) has(addr netip.Addr) bool {
	g.mu.RLock()
	defer g.mu.RUnlock()
	return g.addrs[addr]
}

// receive takes a frame that is addressed to the gateway, or broadcast.
func (g *gateway) receive(p *Port, frame []byte) {
	if header.Ethernet(frame).Type() == header.IPv4ProtocolNumber && !g.passes(p, header.IPv4(frame[header.EthernetMinimumSize:])) {
		return
	}
	pkt := stack.NewPacketBuffer(stack.PacketBufferOptions{Payload: buffer.MakeWithData(frame)})
	defer pkt.DecRef()
	g.link.InjectInbound(0, pkt)
}

// passes reports whether a packet is for the stack; it handles all others.
func (g *gateway) passes(p *Port, ip header.IPv4) bool {
	dst := addrPort(ip)
	switch {
	case isDHCP(ip):
		g.network.serveDHCP(p, ip)
		return false
	case dst.Addr() == netip.AddrFrom4([4]byte{255, 255, 255, 255}), dst.Addr() == broadcast(g.network.config.Subnet):
		return false
	case !g.has(dst.Addr()) && !isNTP(ip):
		g.network.refuse(p, ip, dst)
		return false
	}
	switch p.faults.get(dst) {
	case Refusing:
		p.reject(ip)
		return false
	case Silent:
		return false
	}
	if isNTP(ip) {
		g.network.serveNTP(p, ip)
		return false
	}
	return true
}

// transmit sends the stack's frames to the machines.
func (g *gateway) transmit(ctx context.Context) {
	for {
		pkt := g.link.ReadContext(ctx)
		if pkt == nil {
			return
		}
		buf := pkt.ToBuffer()
		frame := buf.Flatten()
		buf.Release()
		pkt.DecRef()
		if dst := mac(frame[:6]); dst == broadcastMAC {
			g.network.flood(nil, frame)
		} else if to := g.network.portOf(dst); to != nil {
			to.send(frame)
		}
	}
}

// close closes all connections and waits for the stack's goroutines.
func (g *gateway) close() {
	g.stack.Destroy()
	g.cancel()
	g.link.Close()
}
