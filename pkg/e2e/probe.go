// Package e2e asks booted machines what their systemd did.
//
// Nothing is inferred from appearances: every fact about a machine is read from its systemd, journal or files, by a
// probe that the machine gets at power-on. The image stays as it was baked, and no network is needed.
package e2e

import (
	_ "embed"
	"fmt"
	"strings"
	"time"
)

//go:embed probe.sh
var probeScript []byte

// probeUnit runs the script in parallel with the boot: it is of the simple type, so multi-user.target starts it and
// does not wait for it.
const probeUnit = `[Unit]
Description=Report to the host what systemd did
[Service]
Type=simple
LoadCredential=hardtack.probe
ExecStart=/bin/sh %%d/hardtack.probe %d "%s" %s
StandardOutput=null
`

// Probe configures the probe of a machine.
type Probe struct {
	// Units are the names of the units to report.
	Units []string
	// Until are units that have run before the probe reports. It waits until every unit's condition was looked at if
	// there are none.
	Until []string
	// Limit is the time after the kernel's start at which the probe reports even if not everything is decided.
	Limit time.Duration
}

// Credentials returns the system credentials that make a machine with systemd 256 or newer answer the probe on its
// second serial line: a unit, a drop-in by which the boot starts it, and the script.
func (p Probe) Credentials() map[string][]byte {
	unit := fmt.Sprintf(probeUnit, int(p.Limit.Seconds()), strings.Join(p.Until, " "), strings.Join(p.Units, " "))
	return map[string][]byte{
		"systemd.extra-unit.hardtack-probe.service": []byte(unit),
		"systemd.unit-dropin.multi-user.target":     []byte("[Unit]\nWants=hardtack-probe.service\n"),
		"hardtack.probe":                            probeScript,
	}
}
