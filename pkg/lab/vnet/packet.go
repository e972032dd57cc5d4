package vnet

import (
	"encoding/binary"
	"net/netip"
	"strconv"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/checksum"
	"gvisor.dev/gvisor/pkg/tcpip/header"
)

// timeToLive is the TTL of the gateway's own packets.
const timeToLive = 64

// dstPort returns the destination port of a packet that admit has accepted; 0 for a protocol without ports, for a
// fragment other than the first, and for a truncated header.
func dstPort(ip header.IPv4) uint16 {
	body := ip.Payload()
	if p := ip.TransportProtocol(); p != header.TCPProtocolNumber && p != header.UDPProtocolNumber || ip.FragmentOffset() != 0 || len(body) < 4 {
		return 0
	}
	return binary.BigEndian.Uint16(body[2:])
}

func addrPort(ip header.IPv4) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte(ip.DestinationAddressSlice())), dstPort(ip))
}

func protoName(ip header.IPv4) string {
	switch p := ip.TransportProtocol(); p {
	case header.TCPProtocolNumber:
		return "tcp"
	case header.UDPProtocolNumber:
		return "udp"
	case header.ICMPv4ProtocolNumber:
		return "icmp"
	default:
		return strconv.Itoa(int(p))
	}
}

// frameTo makes a frame from the gateway to the machine, with an IP header for the body that follows.
func (p *Port) frameTo(src, dst tcpip.Address, proto tcpip.TransportProtocolNumber, body []byte) []byte {
	const front = header.EthernetMinimumSize + header.IPv4MinimumSize
	frame := make([]byte, front+len(body))
	header.Ethernet(frame).Encode(&header.EthernetFields{
		SrcAddr: tcpip.LinkAddress(gatewayMAC[:]), DstAddr: tcpip.LinkAddress(p.mac[:]), Type: header.IPv4ProtocolNumber,
	})
	ip := header.IPv4(frame[header.EthernetMinimumSize:])
	ip.Encode(&header.IPv4Fields{
		TotalLength: uint16(header.IPv4MinimumSize + len(body)), TTL: timeToLive, Protocol: uint8(proto),
		Flags: header.IPv4FlagDontFragment, SrcAddr: src, DstAddr: dst,
	})
	ip.SetChecksum(^ip.CalculateChecksum())
	copy(frame[front:], body)
	return frame
}

// sendUDP sends a datagram without the stack, which would use ARP for a machine that has no address yet.
func (p *Port) sendUDP(src, dst netip.AddrPort, payload []byte) {
	from, to := tcpip.AddrFrom4(src.Addr().As4()), tcpip.AddrFrom4(dst.Addr().As4())
	u := header.UDP(make([]byte, header.UDPMinimumSize+len(payload)))
	copy(u[header.UDPMinimumSize:], payload)
	u.Encode(&header.UDPFields{SrcPort: src.Port(), DstPort: dst.Port(), Length: uint16(len(u))})
	sum := header.PseudoHeaderChecksum(header.UDPProtocolNumber, from, to, uint16(len(u)))
	u.SetChecksum(^checksum.Checksum(u, sum))
	p.send(p.frameTo(from, to, header.UDPProtocolNumber, u))
}

// reject answers a packet so that its sender fails at once: with a reset for TCP, else with ICMP's "administratively
// prohibited" (RFC 1812, 5.2.7.1), and not at all for ICMP errors.
func (p *Port) reject(ip header.IPv4) {
	if ip.FragmentOffset() != 0 {
		return
	}
	switch body := ip.Payload(); {
	case ip.TransportProtocol() == header.TCPProtocolNumber && len(body) >= header.TCPMinimumSize:
		p.reset(ip, header.TCP(body))
	case ip.TransportProtocol() != header.ICMPv4ProtocolNumber, len(body) > 0 && header.ICMPv4(body).Type() == header.ICMPv4Echo:
		p.prohibit(ip)
	}
}

// reset answers as a closed port does (RFC 9293, 3.5.2).
func (p *Port) reset(ip header.IPv4, seg header.TCP) {
	if seg.Flags().Contains(header.TCPFlagRst) {
		return
	}
	fields := header.TCPFields{SrcPort: seg.DestinationPort(), DstPort: seg.SourcePort(), DataOffset: header.TCPMinimumSize, Flags: header.TCPFlagRst}
	if seg.Flags().Contains(header.TCPFlagAck) {
		fields.SeqNum = seg.AckNumber()
	} else {
		length := uint32(0)
		if offset := int(seg.DataOffset()); offset <= len(seg) {
			length = uint32(len(seg) - offset)
		}
		for _, flag := range []header.TCPFlags{header.TCPFlagSyn, header.TCPFlagFin} {
			if seg.Flags().Contains(flag) {
				length++
			}
		}
		fields.Flags |= header.TCPFlagAck
		fields.AckNum = seg.SequenceNumber() + length
	}
	out := header.TCP(make([]byte, header.TCPMinimumSize))
	out.Encode(&fields)
	sum := header.PseudoHeaderChecksum(header.TCPProtocolNumber, ip.DestinationAddress(), ip.SourceAddress(), header.TCPMinimumSize)
	out.SetChecksum(^out.CalculateChecksum(sum))
	p.send(p.frameTo(ip.DestinationAddress(), ip.SourceAddress(), header.TCPProtocolNumber, out))
}

// prohibit returns the packet's header and 8 bytes, by which its sender recognizes it.
func (p *Port) prohibit(ip header.IPv4) {
	quote := ip[:min(len(ip), int(ip.HeaderLength())+8)]
	msg := header.ICMPv4(make([]byte, header.ICMPv4MinimumSize+len(quote)))
	msg.SetType(header.ICMPv4DstUnreachable)
	msg.SetCode(header.ICMPv4AdminProhibited)
	copy(msg[header.ICMPv4MinimumSize:], quote)
	msg.SetChecksum(^checksum.Checksum(msg, 0))
	from := tcpip.AddrFrom4(p.network.Gateway().As4())
	p.send(p.frameTo(from, ip.SourceAddress(), header.ICMPv4ProtocolNumber, msg))
}
