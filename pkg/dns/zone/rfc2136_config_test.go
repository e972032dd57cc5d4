package zone_test

import (
	"testing"

	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/record"
	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/zone"
	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/zone/zonetest"
)

func TestNewRFC2136(t *testing.T) {
	if z, err := zone.NewRFC2136(zone.RFC2136Config{Policy: record.DefaultPolicy()}); err == nil || z != nil {
		t.Errorf("a zone on no server: %v, %v", z, err)
	}
	// Nothing listens there: the error names what was tried.
	for server, want := range map[string]string{
		"127.0.0.1:1":     "from 127.0.0.1:1:",
		"127.255.255.254": "from 127.255.255.254:53:",
		"::1":             "from [::1]:53:",
		"[::1]":           "from [::1]:53:",
		"[::1]:1":         "from [::1]:1:",
	} {
		_, err := at(t, server, "").Read(t.Context(), zonetest.Cluster)
		says(t, err, []string{want, "zone k8s."})
	}
}

// The limit of a set is the server's, which the configuration knows.
func TestRFC2136Limits(t *testing.T) {
	for configured, want := range map[int]int{0: 100, 7: 7, -1: 0} {
		z := at(t, "127.0.0.1:1", "", func(c *zone.RFC2136Config) { c.SetValues = configured })
		if got := z.Limits().SetValues; got != want {
			t.Errorf("%d: %d, want %d", configured, got, want)
		}
	}
}

func TestRFC2136SaysHowItSigns(t *testing.T) {
	if got := at(t, "127.0.0.1:1", "").Signer(); got != "" {
		t.Errorf("without a key: %q", got)
	}
	if got := at(t, "127.0.0.1:1", "", withKey).Signer(); got != "key hardtack." {
		t.Errorf("with a key: %q", got)
	}
}
