package boot

import (
	"errors"

	"golang.org/x/sys/unix"

	"github.com/hardtack/packer-plugin-hardtack/pkg/node/reason"
)

// Facts identify a machine, by its hardware and by the last Run.
type Facts struct {
	// Metadata: the machine has an instance metadata service, since its hardware is EC2's or the kernel command line
	// names the service; the search for user data uses the same rule. Why says how that is known. Endpoint is empty for
	// the usual one.
	Metadata      bool
	Why, Endpoint string
	// Hardware is the instance id or the product's UUID; empty if the hardware has neither.
	Hardware string
	// Instance is the machine's id according to the source of the user data or the hardware, and Digest the SHA-256 of
	// the user data in hex, as Run recorded them; empty if it has not run.
	Instance, Digest string
}

// ReadFacts reads the facts of the machine with the root directory root; "" is "/".
func ReadFacts(root string) Facts {
	a := newAgent(Options{Root: root})
	before := a.loadState(&Report{})
	f := Facts{Metadata: a.machine.ec2, Why: a.machine.why, Endpoint: a.kernel[OptionIMDS], Hardware: a.machine.id, Instance: before.InstanceID, Digest: before.Digest}
	if !f.Metadata && a.isSelected(sourceIMDS) {
		f.Metadata, f.Why = true, OptionSource+"="+sourceIMDS+" on the kernel command line"
	}
	return f
}

// ReasonOf returns the reason of an error of Run: a metadata service that does not answer, a disk that takes no files, or
// the user data.
func ReasonOf(err error) reason.Reason {
	var has *reason.Error
	if errors.As(err, &has) {
		return has.Reason
	}
	var broken *unreadableError
	if errors.As(err, &broken) && broken.source == sourceIMDS {
		return reason.Metadata
	}
	for _, no := range []error{unix.EROFS, unix.ENOSPC, unix.EDQUOT, unix.EIO} {
		if errors.Is(err, no) {
			return reason.Disk
		}
	}
	return reason.UserData
}
