package vnet

import (
	"bytes"

	"gvisor.dev/gvisor/pkg/tcpip/header"
)

// forward delivers a machine's frame to its destination.
func (n *Network) forward(p *Port, frame []byte) {
	if !p.admit(frame) {
		return
	}
	switch dst := mac(frame[:6]); {
	case dst == gatewayMAC:
		n.gateway.receive(p, frame)
	case dst == broadcastMAC:
		// Broadcasts are ARP requests, for every machine, or DHCP, only for the gateway.
		n.gateway.receive(p, frame)
		if header.Ethernet(frame).Type() == header.ARPProtocolNumber {
			n.flood(p, frame)
		}
	case dst[0]&1 == 1:
		p.count.foreign.Add(1)
	default:
		to := n.portOf(dst)
		switch {
		case to == nil:
		case !to.accepts(frame):
			p.count.spoofed.Add(1)
		default:
			to.send(frame)
		}
	}
}

// accepts reports whether a frame that passed admit is for the machine's address, and not one that the machine would
// have to route.
func (p *Port) accepts(frame []byte) bool {
	if header.Ethernet(frame).Type() != header.IPv4ProtocolNumber {
		return true
	}
	return bytes.Equal(header.IPv4(frame[header.EthernetMinimumSize:]).DestinationAddressSlice(), p.addr[:])
}

func (n *Network) portOf(dst mac) *Port {
	n.mu.RLock()
	defer n.mu.RUnlock()
	return n.byMAC[dst]
}

// flood sends a frame to every machine but its sender; a nil sender is the gateway.
func (n *Network) flood(from *Port, frame []byte) {
	n.mu.RLock()
	defer n.mu.RUnlock()
	for _, to := range n.byMAC {
		if to != from {
			to.send(frame)
		}
	}
}

// admit reports whether a frame has the machine's own source addresses, and counts it if not.
func (p *Port) admit(frame []byte) bool {
	if len(frame) < header.EthernetMinimumSize {
		p.count.foreign.Add(1)
		return false
	}
	eth, body := header.Ethernet(frame), frame[header.EthernetMinimumSize:]
	own := mac(frame[6:12]) == p.mac
	switch eth.Type() {
	case header.ARPProtocolNumber:
		a := header.ARP(body)
		if !a.IsValid() {
			p.count.foreign.Add(1)
			return false
		}
		own = own && mac(a.HardwareAddressSender()) == p.mac && p.ownAddr(a.ProtocolAddressSender())
	case header.IPv4ProtocolNumber:
		ip := header.IPv4(body)
		if !ip.IsValid(len(body)) {
			p.count.foreign.Add(1)
			return false
		}
		// Without an address a machine can only request one.
		own = own && p.ownAddr(ip.SourceAddressSlice()) && (isDHCP(ip) || !ip.SourceAddress().Unspecified())
	default: // IPv6 neighbour discovery, LLDP and so on
		p.count.foreign.Add(1)
		return false
	}
	if !own {
		p.count.spoofed.Add(1)
	}
	return own
}

// ownAddr reports whether an address is the machine's, or the unspecified one of a machine without an address.
func (p *Port) ownAddr(addr []byte) bool {
	return bytes.Equal(addr, p.addr[:]) || bytes.Equal(addr, []byte{0, 0, 0, 0})
}
