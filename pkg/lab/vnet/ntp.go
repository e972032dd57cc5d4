package vnet

import (
	"encoding/binary"
	"net/netip"
	"time"

	"gvisor.dev/gvisor/pkg/tcpip/header"
)

// Clock is the address of the time server that every VPC has: Amazon Time Sync. Its time is the computer's.
func Clock() netip.AddrPort { return netip.MustParseAddrPort("169.254.169.123:123") }

// The fields of an NTP message that count here (RFC 5905, 7.3), by their offsets, and the modes.
const (
	ntpLength    = 48
	ntpStratum   = 1
	ntpPoll      = 2
	ntpPrecision = 3
	ntpDelay     = 4
	ntpSpread    = 8
	ntpReference = 16
	ntpOriginate = 24
	ntpReceive   = 32
	ntpTransmit  = 40

	modeClient = 3
	modeServer = 4
)

// clockStratum is how far the computer may be from a reference clock; nobody asks it.
const clockStratum = 4

// ntpEpoch is the beginning of NTP's time, 1900, before that of Unix, in seconds.
const ntpEpoch = 2208988800

func isNTP(ip header.IPv4) bool {
	return ip.TransportProtocol() == header.UDPProtocolNumber && addrPort(ip) == Clock()
}

// serveNTP answers a client, as a server that keeps no state of it.
func (n *Network) serveNTP(p *Port, ip header.IPv4) {
	body := ip.Payload()
	if len(body) < header.UDPMinimumSize {
		return
	}
	u := header.UDP(body)
	answer := answerNTP(u.Payload(), time.Now())
	if answer == nil {
		return
	}
	p.sendUDP(Clock(), netip.AddrPortFrom(netip.AddrFrom4([4]byte(ip.SourceAddressSlice())), u.SourcePort()), answer)
}

// answerNTP returns the answer to a client's message, nil if it is none.
func answerNTP(request []byte, now time.Time) []byte {
	if len(request) < ntpLength || request[0]&7 != modeClient {
		return nil
	}
	version := request[0] >> 3 & 7
	if version < 3 || version > 4 {
		return nil
	}
	m := make([]byte, ntpLength)
	m[0] = version<<3 | modeServer
	m[ntpStratum], m[ntpPoll], m[ntpPrecision] = clockStratum, request[ntpPoll], 0xec // 2^-20 s
	binary.BigEndian.PutUint32(m[ntpDelay:], 1<<6)                                    // a millisecond, in 2^-16 s
	binary.BigEndian.PutUint32(m[ntpSpread:], 1<<6)
	copy(m[12:], Clock().Addr().AsSlice()) // the reference's id
	binary.BigEndian.PutUint64(m[ntpReference:], ntpTime(now.Truncate(time.Minute)))
	copy(m[ntpOriginate:ntpReceive], request[ntpTransmit:ntpLength])
	binary.BigEndian.PutUint64(m[ntpReceive:], ntpTime(now))
	binary.BigEndian.PutUint64(m[ntpTransmit:], ntpTime(now))
	return m
}

// ntpTime is a time in NTP's format: seconds, and parts of 2^32 of one.
func ntpTime(t time.Time) uint64 {
	return uint64(t.Unix()+ntpEpoch)<<32 | uint64(t.Nanosecond())<<32/1e9
}
