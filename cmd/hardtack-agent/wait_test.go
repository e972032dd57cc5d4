package main

import (
	"slices"
	"testing"

	"github.com/hardtack/packer-plugin-hardtack/pkg/node/config"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/machine"
)

// TestWaitService: the API's Service is at the first address of the Services' range, which the API server's certificate has.
func TestWaitService(t *testing.T) {
	for cidr, want := range map[string][]string{"10.96.0.0/16": {"https://10.96.0.1:443/readyz"}, "fd00::7/112": {"https://[fd00::1]:443/readyz"}, "x": nil} {
		f := waitFlags{service: true}
		got, err := f.known(config.Effective{Config: machine.Config{Network: machine.Network{ServiceCIDR: cidr}}})
		if !slices.Equal(got, want) || (err == nil) != (want != nil) {
			t.Errorf("%s: %q, %v", cidr, got, err)
		}
	}
}
