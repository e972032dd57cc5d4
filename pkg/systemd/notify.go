// Package systemd talks to the service manager of the machine.
//
// Its rule: outside of a systemd service nothing is said and nothing is wrong, so that every command can be
// run by hand.
package systemd

import (
	"strings"

	"github.com/coreos/go-systemd/v22/daemon"
)

// Status sets the status text of the unit that the process belongs to: systemctl status shows it. A unit
// whose ExecStartPre= says it needs NotifyAccess=exec.
func Status(text string) {
	// Nobody can be told that a status could not be set.
	_, _ = daemon.SdNotify(false, "STATUS="+strings.ReplaceAll(text, "\n", " "))
}

// Ready ends the start of a unit of Type=notify.
func Ready() { _, _ = daemon.SdNotify(false, daemon.SdNotifyReady) } // as in Status

// Unit is the unit that the process runs in, or empty.
func Unit() string { return unitOf(ownCgroup) }
