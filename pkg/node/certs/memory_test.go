package certs

import (
	"net/netip"
	"strings"
	"testing"
)

func TestInMemory(t *testing.T) {
	// Where the tests run from is on a disk, and /dev/shm is memory on every Linux.
	if err := requireTmpfs("."); err == nil || !strings.Contains(err.Error(), "would reach a disk") {
		t.Errorf("a disk: %v", err)
	}
	if err := requireTmpfs("/dev/shm"); err != nil {
		t.Errorf("memory: %v", err)
	}
}

func TestReachable(t *testing.T) {
	for _, tt := range []struct {
		device, address string
		want            bool
	}{
		{"ens5", "10.1.0.12", true}, {"eth0", "2001:db8::1", true}, {"host0", "192.168.1.2", true},
		{"lo", "127.0.0.1", false}, {"lo", "::1", false}, {"ens5", "169.254.1.1", false}, {"ens5", "fe80::1", false},
		{"cbr0", "10.244.1.1", false}, {"flannel.1", "10.244.1.0", false}, {"veth12ab", "10.244.1.9", false},
	} {
		if got := reachable(tt.device, netip.MustParseAddr(tt.address)); got != tt.want {
			t.Errorf("%s on %s: %v", tt.address, tt.device, got)
		}
	}
}
