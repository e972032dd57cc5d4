// Package systemd talks to the machine's service manager.
//
// Its rule: outside a systemd service notifications are dropped without an error, so that every command can be run by
// hand.
package systemd

import (
	"os"
	"strings"

	"github.com/coreos/go-systemd/v22/daemon"
)

// Status sets the status text of the process's unit, which systemctl status shows. A unit that calls it from
// ExecStartPre= needs NotifyAccess=exec.
func Status(text string) {
	// There is no place to report a failure to.
	_, _ = daemon.SdNotify(false, "STATUS="+strings.ReplaceAll(text, "\n", " "))
}

// Listens reports whether a service manager receives notifications of this process.
func Listens() bool { return os.Getenv("NOTIFY_SOCKET") != "" }

// Ready reports that a unit of Type=notify has started.
func Ready() { _, _ = daemon.SdNotify(false, daemon.SdNotifyReady) } // as in Status

// Unit returns the name of the unit that the process runs in, or "".
func Unit() string { return unitOf(ownCgroup) }
