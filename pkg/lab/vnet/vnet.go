// Package vnet is the network of a lab: a subnet of a VPC for virtual machines on one computer, without privileges.
//
// Its rule: no packet leaves the process. Machines reach each other and the gateway's services; everything else is refused
// at once and counted. Each machine has one port, which is its identity: a frame without the port's own addresses is
// dropped (EC2's source/destination check), so that a service can trust the address of its caller.
//
// The switch learns nothing: Attach defines which address is on which port. That is why it is not gvisor-tap-vsock's, which learns
// addresses from the frames that it sees.
package vnet

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"time"

	"gvisor.dev/gvisor/pkg/tcpip/header"
)

// The defaults of Config.
const (
	// DefaultMTU is the MTU between instances in EC2's VPCs, in bytes of an IP packet.
	DefaultMTU = 9001
	// maxMTU keeps a frame below the 68 KiB that QEMU accepts from a stream.
	maxMTU = 65535 - header.EthernetMinimumSize
)

// maxSocketPath is the limit of sockaddr_un, in bytes.
const maxSocketPath = 107

// Config configures a network. The zero value is a usable default.
type Config struct {
	// Subnet is the machines' network; the zero value means 10.1.0.0/24. As in a VPC its first address is the
	// gateway's and the second the resolver's; the third is for AWS's endpoints.
	Subnet netip.Prefix
	// MTU is in bytes of an IP packet; 0 means DefaultMTU.
	MTU int
	// Domain is the domain of the machines' own names, sent by DHCP and searched first
	// ("eu-central-1.compute.internal"); the resolver answers for <hostname>.<domain> and for addresses. Empty means
	// "internal".
	Domain string
	// Search are additional search domains, in this order.
	Search []string
	// Resolver answers for all other names; with nil they do not exist.
	Resolver Resolver
	// Dir is the directory of the ports' sockets; empty means a temporary one, which Close removes. A socket's path has
	// at most 107 bytes.
	Dir string
	// Log receives important events: a machine that connects, a first refused attempt. Nil discards them.
	Log *slog.Logger
}

// Machine is the machine at a port, an argument of Attach.
type Machine struct {
	// Name is used in logs, Refused and Queries: an instance id, for example. It must be unique among attached machines.
	Name string
	// Addr is the machine's address in the subnet, its fixed lease.
	Addr netip.Addr
	// MAC is the card's address; nil means MACOf(Addr).
	MAC net.HardwareAddr
	// Hostname is its name without a domain, sent by DHCP; empty means HostnameOf(Addr).
	Hostname string
}

// MACOf returns the locally administered MAC of an IPv4 address: 06:00 and its four bytes.
func MACOf(addr netip.Addr) net.HardwareAddr {
	b := addr.As4()
	return net.HardwareAddr{6, 0, b[0], b[1], b[2], b[3]}
}

// HostnameOf returns EC2's host name for an address: "ip-10-1-0-12".
func HostnameOf(addr netip.Addr) string {
	b := addr.As4()
	return fmt.Sprintf("ip-%d-%d-%d-%d", b[0], b[1], b[2], b[3])
}

// Network is a running network. It is safe for concurrent use.
type Network struct {
	config  Config
	gateway *gateway
	refused refusals
	queries queryLog
	// tmp is Dir if it is temporary, to be removed.
	tmp string

	mu     sync.RWMutex
	byMAC  map[mac]*Port
	byAddr map[netip.Addr]*Port
	closed bool
	// tasks are all goroutines of the network; done is closed when Close begins.
	tasks sync.WaitGroup
	done  chan struct{}
	stop  func() bool
}

// New starts a network. It ends with ctx or by Close; the caller must call Close in any case.
func New(ctx context.Context, c Config) (*Network, error) {
	c = c.withDefaults()
	if err := c.validate(); err != nil {
		return nil, err
	}
	n := &Network{config: c, byMAC: map[mac]*Port{}, byAddr: map[netip.Addr]*Port{}, done: make(chan struct{})}
	if c.Dir == "" {
		dir, err := os.MkdirTemp("", "hardtack-net-")
		if err != nil {
			return nil, fmt.Errorf("making the network's directory: %w", err)
		}
		n.config.Dir, n.tmp = dir, dir
	}
	if longest := filepath.Join(n.config.Dir, "255.255.255.255.sock"); len(longest) > maxSocketPath {
		return nil, errors.Join(fmt.Errorf("sockets in %s would have names of more than %d bytes (name a shorter directory by TMPDIR)", n.config.Dir, maxSocketPath), n.removeDir())
	}
	g, err := newGateway(ctx, n)
	if err != nil {
		return nil, errors.Join(err, n.removeDir())
	}
	n.gateway = g
	if err := n.serveDNS(ctx); err != nil {
		return nil, errors.Join(err, n.Close())
	}
	n.stop = context.AfterFunc(ctx, func() {
		if err := n.Close(); err != nil {
			n.config.Log.Warn("closing the network", "error", err)
		}
	})
	return n, nil
}

func (c Config) withDefaults() Config {
	if !c.Subnet.IsValid() {
		c.Subnet = netip.MustParsePrefix("10.1.0.0/24")
	}
	if c.MTU == 0 {
		c.MTU = DefaultMTU
	}
	if c.Domain == "" {
		c.Domain = "internal"
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return c
}

func (c Config) validate() error {
	var errs []error
	if !c.Subnet.Addr().Is4() || c.Subnet.Bits() > 28 || c.Subnet != c.Subnet.Masked() {
		errs = append(errs, fmt.Errorf("subnet %s is not an IPv4 network of at least 16 addresses", c.Subnet))
	}
	if c.MTU < 1280 || c.MTU > maxMTU {
		errs = append(errs, fmt.Errorf("MTU %d is not between 1280 and %d", c.MTU, maxMTU))
	}
	for _, name := range append([]string{c.Domain}, c.Search...) {
		if !validName(name) {
			errs = append(errs, fmt.Errorf("domain %q is not a DNS name", name))
		}
	}
	return errors.Join(errs...)
}

// Subnet returns the machines' network.
func (n *Network) Subnet() netip.Prefix { return n.config.Subnet }

// Gateway returns the gateway's address, the subnet's first, which is the source of Dial's and Forward's connections.
func (n *Network) Gateway() netip.Addr { return n.config.Subnet.Addr().Next() }

// DNS returns the resolver's address, the subnet's second.
func (n *Network) DNS() netip.Addr { return n.Gateway().Next() }

// Endpoints returns the address for AWS's endpoints, the subnet's third. It has no listener until Listen is called.
func (n *Network) Endpoints() netip.Addr { return n.DNS().Next() }

// MTU returns the network's MTU, in bytes of an IP packet.
func (n *Network) MTU() int { return n.config.MTU }

// MachineAt returns the attached machine with the address.
func (n *Network) MachineAt(addr netip.Addr) (Machine, bool) {
	n.mu.RLock()
	defer n.mu.RUnlock()
	p, ok := n.byAddr[addr.Unmap()]
	if !ok {
		return Machine{}, false
	}
	return p.machine, true
}

// run starts a task of the network, unless the network is closed.
func (n *Network) run(task func()) error {
	n.mu.RLock()
	defer n.mu.RUnlock()
	if n.closed {
		return net.ErrClosed
	}
	n.tasks.Go(task)
	return nil
}

// ports returns the attached ports.
func (n *Network) ports() []*Port {
	n.mu.RLock()
	defer n.mu.RUnlock()
	all := make([]*Port, 0, len(n.byMAC))
	for _, p := range n.byMAC {
		all = append(all, p)
	}
	return all
}

// Close stops the network and waits until its sockets, connections and goroutines have ended. It may be called more
// than once.
func (n *Network) Close() error {
	n.mu.Lock()
	first := !n.closed
	n.closed = true
	n.mu.Unlock()
	if !first {
		n.tasks.Wait()
		return nil
	}
	if n.stop != nil {
		n.stop()
	}
	close(n.done)
	var errs []error
	for _, p := range n.ports() {
		errs = append(errs, p.Detach())
	}
	n.gateway.close()
	n.tasks.Wait()
	return errors.Join(append(errs, n.removeDir())...)
}

func (n *Network) removeDir() error {
	if n.tmp == "" {
		return nil
	}
	return os.RemoveAll(n.tmp)
}

// Attempt is a machine's traffic to a destination outside the network, which was refused.
type Attempt struct {
	Machine string `json:"machine"`
	// Dst is the destination; the port is 0 for a protocol without ports.
	Dst netip.AddrPort `json:"dst"`
	// Proto is "tcp", "udp", "icmp" or an IP protocol number.
	Proto string `json:"proto"`
	// Packets and Bytes (of IP) were sent and refused.
	Packets int64     `json:"packets"`
	Bytes   int64     `json:"bytes"`
	First   time.Time `json:"first"`
}

// Refused lists the machines' refused attempts to reach the outside, in the order of the first packets.
func (n *Network) Refused() []Attempt { return n.refused.list() }
