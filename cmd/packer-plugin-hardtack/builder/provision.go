//go:build linux

package builder

import (
	"context"

	"github.com/hashicorp/packer-plugin-sdk/multistep"
	"github.com/hashicorp/packer-plugin-sdk/multistep/commonsteps"
	"github.com/hashicorp/packer-plugin-sdk/packerbuilderdata"
)

// StepProvision runs the template's provisioners in the root directory. The SDK's step does the work; this one gives
// it the communicator, which exists only now, and waits for its commands. It has the name of the SDK's step because
// -on-error=run-cleanup-provisioner looks for that name.
type StepProvision struct {
	*job
	inner commonsteps.StepProvision
	comm  *communicator
}

// Run runs the provisioners and, when the build is cancelled, waits until they have ended.
func (s *StepProvision) Run(ctx context.Context, state multistep.StateBag) multistep.StepAction {
	data := packerbuilderdata.GeneratedData{State: state}
	data.Put(dataOutput, s.config.OutputDirectory)
	data.Put(dataEpoch, s.base.Epoch)
	s.comm = newCommunicator(ctx, s.root)
	s.inner.Comm = s.comm
	action := s.inner.Run(ctx, state)
	if ctx.Err() != nil {
		s.comm.wait()
	}
	return action
}

// Cleanup runs the error-cleanup-provisioner after an error, and waits for running commands.
func (s *StepProvision) Cleanup(state multistep.StateBag) {
	if s.comm == nil {
		return
	}
	s.inner.Cleanup(state)
	s.comm.wait()
}
