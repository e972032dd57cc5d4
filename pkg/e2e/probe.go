// Package e2e asks booted machines what their systemd did.
//
// Its rule: nothing is inferred from how things look; every statement about a machine is read from its systemd,
// its journal or its files by a probe that the machine is given at power-on, so that the image stays as it
// was baked and no network is needed.
package e2e

import (
	_ "embed"
	"fmt"
	"strings"
	"time"
)

//go:embed probe.sh
var probeScript []byte

// probeUnit runs the script beside the boot: being of the simple type it is started, and not waited for, by
// multi-user.target.
const probeUnit = `[Unit]
Description=Report to the host what systemd did
[Service]
Type=simple
LoadCredential=hardtack.probe
ExecStart=/bin/sh %%d/hardtack.probe %d %s
StandardOutput=null
`

// Probe is a question to a machine.
type Probe struct {
	// Units are the names of the units to tell about.
	Units []string
	// Limit is how long after power-on (of the kernel) the probe reports, whether or not everything is decided.
	Limit time.Duration
}

// Credentials are the system credentials that make a machine with systemd 256 or newer answer the probe on
// its second serial line: a unit, a drop-in by which the boot starts it, and the script.
func (p Probe) Credentials() map[string][]byte {
	unit := fmt.Sprintf(probeUnit, int(p.Limit.Seconds()), strings.Join(p.Units, " "))
	return map[string][]byte{
		"systemd.extra-unit.hardtack-probe.service": []byte(unit),
		"systemd.unit-dropin.multi-user.target":     []byte("[Unit]\nWants=hardtack-probe.service\n"),
		"hardtack.probe":                            probeScript,
	}
}
