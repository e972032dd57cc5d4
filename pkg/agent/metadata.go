package agent

import (
	"errors"

	"golang.org/x/sys/unix"

	"github.com/hardtack/packer-plugin-hardtack/pkg/agent/reason"
)

// MetadataService says whether a machine has an instance metadata service, by the rule by which its user data
// is looked for: its hardware is EC2's, or the kernel command line names the service. endpoint is empty for the
// usual one. root is the root directory, "" being "/".
func MetadataService(root string) (endpoint string, has bool) {
	a := newAgent(Options{Root: root})
	return a.kernel[OptionIMDS], a.machine.ec2 || a.named(sourceIMDS)
}

// Hardware is what the hardware calls the machine: its instance id or its product's UUID; empty where it says neither.
func Hardware(root string) string { return newAgent(Options{Root: root}).machine.id }

// InstanceID is what the source of the user data calls this machine, or what its hardware says, as the reader noted
// it; empty where it has not run or neither says.
func InstanceID(root string) string {
	a := newAgent(Options{Root: root})
	return a.loadState(&Report{}).InstanceID
}

// ReasonOf is the reason of an error of Run: a metadata service that does not answer, a disk that takes no files, or
// the user data.
func ReasonOf(err error) reason.Reason {
	var broken *brokenError
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
