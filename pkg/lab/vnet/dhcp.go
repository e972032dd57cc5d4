package vnet

import (
	"net"
	"net/netip"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"gvisor.dev/gvisor/pkg/tcpip/header"
)

// leaseTime is long, since an address belongs to its machine as long as the machine exists: a machine whose clock a
// test has changed, or that was paused for an hour, keeps it. (EC2's is one hour.)
const leaseTime = 24 * time.Hour

const (
	dhcpServerPort = 67
	dhcpClientPort = 68
)

func isDHCP(ip header.IPv4) bool {
	return ip.TransportProtocol() == header.UDPProtocolNumber && dstPort(ip) == dhcpServerPort
}

// serveDHCP answers a client, which can only be the port's machine, with its fixed lease.
func (n *Network) serveDHCP(p *Port, ip header.IPv4) {
	body := ip.Payload()
	if len(body) < header.UDPMinimumSize {
		return
	}
	req, err := dhcpv4.FromBytes(header.UDP(body).Payload())
	if err != nil || req.OpCode != dhcpv4.OpcodeBootRequest || mac(req.ClientHWAddr) != p.mac {
		return // invalid or not its own: no answer
	}
	if server := req.ServerIdentifier(); server != nil && !server.Equal(net.IP(n.Gateway().AsSlice())) {
		return // for another DHCP server, which does not exist here
	}
	reply, err := n.lease(p.machine, req)
	if err != nil || reply == nil {
		return
	}
	// Sent to the card's MAC, not broadcast: a client must accept it without an address too (RFC 2131, 4.1).
	to := netip.AddrFrom4([4]byte{255, 255, 255, 255})
	if !req.ClientIPAddr.IsUnspecified() {
		to = p.machine.Addr
	}
	p.sendUDP(netip.AddrPortFrom(n.Gateway(), dhcpServerPort), netip.AddrPortFrom(to, dhcpClientPort), reply.ToBytes())
}

// lease returns the answer to a client's message, or nil if there is none.
func (n *Network) lease(m Machine, req *dhcpv4.DHCPv4) (*dhcpv4.DHCPv4, error) {
	kind := dhcpv4.MessageTypeAck
	switch req.MessageType() {
	case dhcpv4.MessageTypeDiscover:
		kind = dhcpv4.MessageTypeOffer
	case dhcpv4.MessageTypeRequest:
		if wanted := requested(req); wanted.IsValid() && wanted != m.Addr {
			return dhcpv4.NewReplyFromRequest(req, dhcpv4.WithMessageType(dhcpv4.MessageTypeNak),
				dhcpv4.WithOption(dhcpv4.OptServerIdentifier(n.Gateway().AsSlice())))
		}
	case dhcpv4.MessageTypeInform:
	default: // release or decline: the machine keeps its address
		return nil, nil
	}
	mods := []dhcpv4.Modifier{
		dhcpv4.WithMessageType(kind),
		dhcpv4.WithServerIP(n.Gateway().AsSlice()),
		dhcpv4.WithOption(dhcpv4.OptServerIdentifier(n.Gateway().AsSlice())),
		dhcpv4.WithNetmask(net.CIDRMask(n.config.Subnet.Bits(), 32)),
		dhcpv4.WithRouter(n.Gateway().AsSlice()),
		dhcpv4.WithDNS(n.DNS().AsSlice()),
		dhcpv4.WithOption(dhcpv4.OptHostName(m.Hostname)),
		dhcpv4.WithOption(dhcpv4.OptDomainName(n.config.Domain)),
		dhcpv4.WithDomainSearchList(append([]string{n.config.Domain}, n.config.Search...)...),
		dhcpv4.WithGeneric(dhcpv4.OptionInterfaceMTU, []byte{byte(n.config.MTU >> 8), byte(n.config.MTU)}),
	}
	if req.MessageType() != dhcpv4.MessageTypeInform {
		mods = append(mods, dhcpv4.WithYourIP(m.Addr.AsSlice()), dhcpv4.WithLeaseTime(uint32(leaseTime/time.Second)))
	}
	return dhcpv4.NewReplyFromRequest(req, mods...)
}

// requested returns the address that a client asks for: from the option while it has none, else its own.
func requested(req *dhcpv4.DHCPv4) netip.Addr {
	ip := req.RequestedIPAddress()
	if ip == nil || ip.IsUnspecified() {
		ip = req.ClientIPAddr
	}
	addr, ok := netip.AddrFromSlice(ip.To4())
	if !ok || addr.IsUnspecified() {
		return netip.Addr{}
	}
	return addr
}
