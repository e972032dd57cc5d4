package vnet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
	"gvisor.dev/gvisor/pkg/waiter"
)

// backlog is the number of connections that wait for Accept.
const backlog = 1024

func fullAddress(a netip.AddrPort) tcpip.FullAddress {
	return tcpip.FullAddress{NIC: nic, Addr: tcpip.AddrFrom4(a.Addr().As4()), Port: a.Port()}
}

// Listen listens for TCP connections on the gateway, on a subnet or link-local address that no machine has
// (169.254.169.254:80, or Endpoints()). The remote address of a connection is the machine's own, and cannot be spoofed.
// Closing the network closes the listener.
func (n *Network) Listen(addr netip.AddrPort) (net.Listener, error) {
	if err := n.checkService(addr); err != nil {
		return nil, fmt.Errorf("listening on %s: %w", addr, err)
	}
	if err := n.gateway.assign(addr.Addr()); err != nil {
		return nil, err
	}
	l := &listener{done: make(chan struct{})}
	ep, e := n.gateway.stack.NewEndpoint(tcp.ProtocolNumber, ipv4.ProtocolNumber, &l.queue)
	if e != nil {
		return nil, fmt.Errorf("listening on %s: %s", addr, e)
	}
	if e := ep.Bind(fullAddress(addr)); e != nil {
		ep.Close()
		return nil, fmt.Errorf("listening on %s: %s", addr, e)
	}
	if e := ep.Listen(backlog); e != nil {
		ep.Close()
		return nil, fmt.Errorf("listening on %s: %s", addr, e)
	}
	l.ep, l.addr = ep, net.TCPAddrFromAddrPort(addr)
	err := n.run(func() { // so that Accept ends with the network
		select {
		case <-n.done:
			_ = l.Close()
		case <-l.done:
		}
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("listening on %s: %w", addr, err), l.Close())
	}
	return l, nil
}

func (n *Network) checkService(addr netip.AddrPort) error {
	a := addr.Addr()
	_, taken := n.MachineAt(a)
	switch {
	case !a.Is4() || addr.Port() == 0:
		return errors.New("not an IPv4 address and port")
	case taken:
		return errors.New("the address is a machine's")
	case !n.config.Subnet.Contains(a) && !a.IsLinkLocalUnicast():
		return fmt.Errorf("the address is neither in %s nor link-local", n.config.Subnet)
	}
	return nil
}

// listener is gonet's listener, with access to the connections' endpoints.
type listener struct {
	ep    tcpip.Endpoint
	queue waiter.Queue
	addr  net.Addr
	once  sync.Once
	done  chan struct{}
}

func (l *listener) Accept() (net.Conn, error) {
	entry, ready := waiter.NewChannelEntry(waiter.ReadableEvents)
	l.queue.EventRegister(&entry)
	defer l.queue.EventUnregister(&entry)
	for {
		select {
		case <-l.done:
			return nil, net.ErrClosed
		default:
		}
		ep, queue, err := l.ep.Accept(nil)
		switch err.(type) {
		case nil:
			return &Conn{TCPConn: gonet.NewTCPConn(queue, ep), ep: ep}, nil
		case *tcpip.ErrWouldBlock:
		case *tcpip.ErrInvalidEndpointState:
			// The endpoint's error if Close was called between the check of done and Accept.
			return nil, net.ErrClosed
		default:
			return nil, &net.OpError{Op: "accept", Net: "tcp", Addr: l.addr, Err: errors.New(err.String())}
		}
		select {
		case <-l.done:
		case <-ready:
		}
	}
}

func (l *listener) Close() error {
	l.once.Do(func() {
		close(l.done)
		l.ep.Close()
	})
	return nil
}

func (l *listener) Addr() net.Addr { return l.addr }

// Conn is a machine's connection to a service of the gateway.
type Conn struct {
	*gonet.TCPConn
	ep tcpip.Endpoint
}

// SetHopLimit sets the TTL of packets sent from now on: 1 reaches the machine but not its pods.
func (c *Conn) SetHopLimit(hops int) error {
	if err := c.ep.SetSockOptInt(tcpip.IPv4TTLOption, hops); err != nil {
		return fmt.Errorf("setting the hop limit: %s", err)
	}
	return nil
}

// Dial connects from the gateway to a machine.
func (n *Network) Dial(ctx context.Context, addr netip.AddrPort) (net.Conn, error) {
	if _, ok := n.MachineAt(addr.Addr()); !ok {
		return nil, fmt.Errorf("connecting to %s: no machine has this address", addr)
	}
	from := tcpip.FullAddress{NIC: nic, Addr: tcpip.AddrFrom4(n.Gateway().As4())}
	conn, err := gonet.DialTCPWithBind(ctx, n.gateway.stack, from, fullAddress(addr), ipv4.ProtocolNumber)
	if err != nil {
		return nil, fmt.Errorf("connecting to %s: %w", addr, err)
	}
	return conn, nil
}

// Forward listens on an address of the host ("127.0.0.1:0") and forwards every connection to the address that target
// returns at that time, so that it can follow a replaced machine. It ends with ctx or the network; it returns the address
// on which it listens.
func (n *Network) Forward(ctx context.Context, host string, target func(context.Context) (netip.AddrPort, error)) (net.Addr, error) {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", host)
	if err != nil {
		return nil, fmt.Errorf("forwarding a port: %w", err)
	}
	err = n.run(func() {
		ctx, cancel := context.WithCancel(ctx)
		var conns sync.WaitGroup
		defer conns.Wait()
		defer cancel()
		conns.Go(func() {
			select {
			case <-ctx.Done():
			case <-n.done:
			}
			cancel()
			_ = l.Close()
		})
		for {
			conn, err := l.Accept()
			if err != nil {
				return // closed
			}
			conns.Go(func() { n.carry(ctx, conn, target) })
		}
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("forwarding a port: %w", err), l.Close())
	}
	return l.Addr(), nil
}

// To returns a constant target for Forward.
func To(addr netip.AddrPort) func(context.Context) (netip.AddrPort, error) {
	return func(context.Context) (netip.AddrPort, error) { return addr, nil }
}

// carry copies in both directions until both sides have ended, or ctx.
func (n *Network) carry(ctx context.Context, from net.Conn, target func(context.Context) (netip.AddrPort, error)) {
	defer func() { _ = from.Close() }()
	addr, err := target(ctx)
	if err != nil {
		n.config.Log.Info("a forwarded connection has no target", "error", err)
		return
	}
	to, err := n.Dial(ctx, addr)
	if err != nil {
		n.config.Log.Info("a forwarded connection did not reach its target", "error", err)
		return
	}
	stop := context.AfterFunc(ctx, func() {
		_ = from.Close()
		_ = to.Close()
	})
	defer stop()
	defer func() { _ = to.Close() }()
	var both sync.WaitGroup
	both.Go(func() { pump(to, from) })
	both.Go(func() { pump(from, to) })
	both.Wait()
}

// pump copies until the source ends, and closes only that direction: HTTP's half-closed connections stay open.
func pump(to, from net.Conn) {
	_, err := io.Copy(to, from)
	if err != nil {
		_ = to.Close()
		_ = from.Close()
		return
	}
	if half, ok := to.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite()
	}
}
