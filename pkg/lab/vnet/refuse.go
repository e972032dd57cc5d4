package vnet

import (
	"maps"
	"net/netip"
	"sync"
	"time"

	"gvisor.dev/gvisor/pkg/tcpip/header"
)

// maxAttempts bounds the table of refused destinations. Further ones are counted under destination 0.0.0.0.
const maxAttempts = 4096

type attemptKey struct {
	machine, proto string
	dst            netip.AddrPort
}

// refusals counts the machines' packets to addresses outside the network.
type refusals struct {
	mu   sync.Mutex
	by   map[attemptKey]*Attempt
	keys []attemptKey // in the order of the first attempts
}

// add counts a packet and reports whether it is the first of its kind.
func (r *refusals) add(machine, proto string, dst netip.AddrPort, bytes int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	key := attemptKey{machine, proto, dst}
	if r.by[key] == nil && len(r.by) >= maxAttempts {
		key.dst = netip.AddrPortFrom(netip.IPv4Unspecified(), 0)
	}
	a, first := r.by[key], false
	if a == nil {
		if r.by == nil {
			r.by = map[attemptKey]*Attempt{}
		}
		a, first = &Attempt{Machine: machine, Dst: key.dst, Proto: proto, First: time.Now()}, true
		r.by[key] = a
		r.keys = append(r.keys, key)
	}
	a.Packets++
	a.Bytes += int64(bytes)
	return first
}

func (r *refusals) list() []Attempt {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := make([]Attempt, 0, len(r.keys))
	for _, key := range r.keys {
		all = append(all, *r.by[key])
	}
	return all
}

// refuse counts a packet to the outside and makes its sender fail at once.
func (n *Network) refuse(p *Port, ip header.IPv4, dst netip.AddrPort) {
	if n.refused.add(p.machine.Name, protoName(ip), dst, len(ip)) {
		n.config.Log.Info("refused a packet to the outside", "machine", p.machine.Name, "proto", protoName(ip), "dst", dst)
	}
	p.reject(ip)
}

// Fault is the state of a service for one machine.
type Fault string

// The faults: Refusing answers with a reset, like a closed port; Silent drops, like a missing route.
const (
	None     Fault = ""
	Refusing Fault = "refusing"
	Silent   Fault = "silent"
)

// faults are the faults of the gateway's services for one port.
type faults struct {
	mu sync.RWMutex
	by map[netip.AddrPort]Fault
}

func (f *faults) get(dst netip.AddrPort) Fault {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return f.by[dst]
}

// SetFault sets the fault of one of the gateway's services for this machine, from now on and for open connections
// too. None ends it: so a service can appear late.
func (p *Port) SetFault(service netip.AddrPort, fault Fault) {
	p.faults.mu.Lock()
	defer p.faults.mu.Unlock()
	by := maps.Clone(p.faults.by)
	if by == nil {
		by = map[netip.AddrPort]Fault{}
	}
	by[service] = fault
	maps.DeleteFunc(by, func(_ netip.AddrPort, f Fault) bool { return f == None })
	p.faults.by = by
}
