package vnet

import (
	"bytes"

	"gvisor.dev/gvisor/pkg/tcpip/header"
)

// forward carries one frame of a machine to where it is meant for.
func (n *Network) forward(p *Port, frame []byte) {
	if !p.admit(frame) {
		return
	}
	switch dst := mac(frame[:6]); {
	case dst == gatewayMAC:
		n.gateway.receive(p, frame)
	case dst == broadcastMAC:
		// Of broadcasts there are ARP's questions, for everybody, and DHCP's, for the gateway alone.
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
		case !to.meant(frame):
			p.count.spoofed.Add(1)
		default:
			to.send(frame)
		}
	}
}

// meant reports whether a frame that admit has let pass is for the machine's address, and not for one that it would
// have to route.
func (p *Port) meant(frame []byte) bool {
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

// flood sends a frame to every machine but the one that it is from; nil is the gateway.
func (n *Network) flood(from *Port, frame []byte) {
	n.mu.RLock()
	defer n.mu.RUnlock()
	for _, to := range n.byMAC {
		if to != from {
			to.send(frame)
		}
	}
}

// admit reports whether a frame bears the machine's own addresses, and counts it where it does not.
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
		// Without an address there is nothing to do but to ask for one.
		own = own && p.ownAddr(ip.SourceAddressSlice()) && (isDHCP(ip) || !ip.SourceAddress().Unspecified())
	default: // IPv6's neighbour discovery, LLDP and the like
		p.count.foreign.Add(1)
		return false
	}
	if !own {
		p.count.spoofed.Add(1)
	}
	return own
}

// ownAddr reports whether an address is the machine's, or that of a machine which has none yet.
func (p *Port) ownAddr(addr []byte) bool {
	return bytes.Equal(addr, p.addr[:]) || bytes.Equal(addr, []byte{0, 0, 0, 0})
}
