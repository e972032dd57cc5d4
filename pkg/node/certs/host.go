package certs

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
)

// podDevices are the beginnings of the names of network devices that lead to pods, not to other machines: containerd's
// bridge, its pods' ends, and flannel's overlay.
var podDevices = []string{"cbr", "cni", "veth", "flannel", "docker", "kube-"}

// ThisHost returns the machine's name and the addresses by which others reach it.
func ThisHost() (Host, error) {
	name, err := os.Hostname()
	if err != nil {
		return Host{}, fmt.Errorf("asking for the host's name: %w", err)
	}
	devices, err := net.Interfaces()
	if err != nil {
		return Host{}, fmt.Errorf("listing the network devices: %w", err)
	}
	h := Host{Name: name}
	for _, d := range devices {
		addresses, err := d.Addrs()
		if err != nil {
			return Host{}, fmt.Errorf("listing the addresses of %s: %w", d.Name, err)
		}
		for _, a := range addresses {
			prefix, err := netip.ParsePrefix(a.String())
			if err == nil && reachable(d.Name, prefix.Addr()) {
				h.Addresses = append(h.Addresses, prefix.Addr().Unmap())
			}
		}
	}
	slices.SortFunc(h.Addresses, netip.Addr.Compare)
	h.Addresses = slices.Compact(h.Addresses)
	return h, nil
}

// reachable reports whether others can reach a machine by an address of a device.
func reachable(device string, address netip.Addr) bool {
	pods := slices.ContainsFunc(podDevices, func(prefix string) bool { return strings.HasPrefix(device, prefix) })
	return !pods && address.IsGlobalUnicast()
}
