package vnet

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"

	"gvisor.dev/gvisor/pkg/tcpip/header"
)

// queueLength is the number of frames queued for a machine that does not read; more are lost, as on a wire. At 9001
// bytes that is at most 4.6 MB a machine. A paused machine must never block the others.
const queueLength = 512

// mac is a MAC address as a map's key.
type mac [6]byte

// Port is a machine's port on the switch.
type Port struct {
	network *Network
	machine Machine
	mac     mac
	addr    [4]byte
	listen  *net.UnixListener
	out     chan []byte
	// done is closed when the port is detached.
	done   chan struct{}
	faults faults
	count  counters

	mu   sync.Mutex
	conn net.Conn
	gone bool
}

// counters are atomic, since a reader and several writers update them.
type counters struct {
	received, sent, spoofed, foreign, lost, connects atomic.Int64
}

// Stats are a port's counters of frames.
type Stats struct {
	// Received are from the machine and Sent to it.
	Received int64 `json:"received"`
	Sent     int64 `json:"sent"`
	// Spoofed have a source that is not the machine's, or a destination that is not their receiver's.
	Spoofed int64 `json:"spoofed"`
	// Foreign are neither IPv4 nor ARP, or are multicast: a VPC carries none of them.
	Foreign int64 `json:"foreign"`
	// Lost did not fit into the machine's queue.
	Lost int64 `json:"lost"`
	// Connects is the number of connections from QEMU: 0 before power-on.
	Connects int64 `json:"connects"`
}

// Attach creates a port for a machine. QEMU connects to the port's Socket; a restarted QEMU (a reboot, a replaced
// process) connects to the same one.
func (n *Network) Attach(m Machine) (*Port, error) {
	if m.Addr.Is4() && m.MAC == nil {
		m.MAC = MACOf(m.Addr)
	}
	if m.Addr.Is4() && m.Hostname == "" {
		m.Hostname = HostnameOf(m.Addr)
	}
	if err := n.checkMachine(m); err != nil {
		return nil, fmt.Errorf("attaching machine %q: %w", m.Name, err)
	}
	p := &Port{network: n, machine: m, mac: mac(m.MAC), addr: m.Addr.As4(), out: make(chan []byte, queueLength), done: make(chan struct{})}
	socket := filepath.Join(n.config.Dir, m.Addr.String()+".sock")
	listen, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("attaching machine %q: %w", m.Name, err)
	}
	p.listen = listen
	n.mu.Lock()
	defer n.mu.Unlock()
	if err := n.free(m); err != nil {
		_ = listen.Close()
		return nil, fmt.Errorf("attaching machine %q: %w", m.Name, err)
	}
	if err := n.gateway.addNeighbor(m); err != nil {
		_ = listen.Close()
		return nil, fmt.Errorf("attaching machine %q: %w", m.Name, err)
	}
	n.byMAC[p.mac], n.byAddr[m.Addr] = p, p
	n.tasks.Go(p.accept)
	return p, nil
}

// checkMachine returns why a machine cannot be attached to this network.
func (n *Network) checkMachine(m Machine) error {
	var errs []error
	if m.Name == "" {
		errs = append(errs, errors.New("it has no name"))
	}
	switch subnet := n.config.Subnet; {
	case !subnet.Contains(m.Addr):
		errs = append(errs, fmt.Errorf("address %s is not in %s", m.Addr, subnet))
	case m.Addr == subnet.Addr(), m.Addr == broadcast(subnet), m.Addr.Compare(n.Endpoints()) <= 0:
		errs = append(errs, fmt.Errorf("address %s is reserved", m.Addr))
	}
	if len(m.MAC) != 6 || m.MAC[0]&1 == 1 || mac(m.MAC) == gatewayMAC {
		errs = append(errs, fmt.Errorf("MAC %q is not the address of one machine", m.MAC))
	}
	if !validLabel(m.Hostname) {
		errs = append(errs, fmt.Errorf("host name %q is not a DNS label", m.Hostname))
	}
	return errors.Join(errs...)
}

// free returns an error if another machine has the name, address or MAC; the caller holds the lock.
func (n *Network) free(m Machine) error {
	if n.closed {
		return net.ErrClosed
	}
	for _, other := range n.byMAC {
		o := other.machine
		if o.Name == m.Name || o.Addr == m.Addr || mac(o.MAC) == mac(m.MAC) || o.Hostname == m.Hostname {
			return fmt.Errorf("machine %q (%s, %s) is attached already", o.Name, o.Addr, o.MAC)
		}
	}
	return nil
}

// Socket returns the path of the Unix socket for QEMU's "-netdev stream,server=off".
func (p *Port) Socket() string { return p.listen.Addr().String() }

// Machine returns the port's machine, with the defaults that Attach has set.
func (p *Port) Machine() Machine { return p.machine }

// Stats returns the port's counters.
func (p *Port) Stats() Stats {
	return Stats{p.count.received.Load(), p.count.sent.Load(), p.count.spoofed.Load(), p.count.foreign.Load(), p.count.lost.Load(), p.count.connects.Load()}
}

// Detach removes the port and frees its address. It may be called more than once.
func (p *Port) Detach() error {
	n := p.network
	n.mu.Lock()
	if n.byMAC[p.mac] == p {
		delete(n.byMAC, p.mac)
		delete(n.byAddr, p.machine.Addr)
		n.gateway.forget(p.machine)
	}
	n.mu.Unlock()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.gone {
		return nil
	}
	p.gone = true
	close(p.done)
	if p.conn != nil {
		_ = p.conn.Close() // its reader reports the error
	}
	if err := p.listen.Close(); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("detaching machine %q: %w", p.machine.Name, err)
	}
	return nil
}

// accept serves one connection at a time: QEMU's newest one replaces the one before.
func (p *Port) accept() {
	var serving sync.WaitGroup
	defer serving.Wait()
	for {
		conn, err := p.listen.Accept()
		if err != nil {
			return // detached
		}
		p.mu.Lock()
		if p.gone {
			p.mu.Unlock()
			_ = conn.Close()
			return
		}
		if p.conn != nil {
			_ = p.conn.Close()
		}
		p.conn = conn
		p.mu.Unlock()
		serving.Wait()
		p.drain()
		p.count.connects.Add(1)
		p.network.config.Log.Debug("machine connected", "machine", p.machine.Name)
		ended := make(chan struct{})
		serving.Go(func() { p.write(conn, ended) })
		serving.Go(func() {
			defer close(ended)
			p.read(conn)
		})
	}
}

// drain drops frames queued before this connection.
func (p *Port) drain() {
	for {
		select {
		case <-p.out:
		default:
			return
		}
	}
}

// read reads frames of QEMU's stream protocol: 4 bytes of length, big endian, and the frame.
func (p *Port) read(conn net.Conn) {
	defer func() { _ = conn.Close() }()
	in := bufio.NewReaderSize(conn, 256<<10)
	limit := uint32(p.network.config.MTU + header.EthernetMinimumSize + 4) // room for a VLAN tag, to be dropped as foreign
	var size [4]byte
	for {
		if _, err := io.ReadFull(in, size[:]); err != nil {
			return
		}
		length := binary.BigEndian.Uint32(size[:])
		if length > limit {
			// Longer than the MTU: a card drops it.
			if _, err := in.Discard(int(length)); err != nil {
				return
			}
			p.count.foreign.Add(1)
			continue
		}
		frame := make([]byte, length)
		if _, err := io.ReadFull(in, frame); err != nil {
			return
		}
		p.count.received.Add(1)
		p.network.forward(p, frame)
	}
}

// write sends the queued frames, as many at once as there are.
func (p *Port) write(conn net.Conn, ended <-chan struct{}) {
	out := bufio.NewWriterSize(conn, 256<<10)
	for {
		select {
		case <-ended:
			return
		case <-p.done:
			return
		case frame := <-p.out:
			var size [4]byte
			binary.BigEndian.PutUint32(size[:], uint32(len(frame)))
			_, _ = out.Write(size[:])
			_, _ = out.Write(frame) // bufio keeps its error for Flush
			p.count.sent.Add(1)
			if len(p.out) > 0 {
				continue
			}
			if out.Flush() != nil {
				_ = conn.Close()
				<-ended
				return
			}
		}
	}
}

// send queues a frame for the machine; the frame must not be changed afterwards.
func (p *Port) send(frame []byte) {
	select {
	case p.out <- frame:
	default:
		p.count.lost.Add(1)
	}
}

// broadcast returns the last address of an IPv4 network.
func broadcast(subnet netip.Prefix) netip.Addr {
	b := subnet.Addr().As4()
	v := binary.BigEndian.Uint32(b[:]) | uint32(1<<(32-subnet.Bits())-1)
	binary.BigEndian.PutUint32(b[:], v)
	return netip.AddrFrom4(b)
}
