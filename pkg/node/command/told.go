package command

import (
	"context"
	"errors"
	"path/filepath"
	"slices"

	"github.com/hardtack/packer-plugin-hardtack/pkg/node/boot"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/config"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/reason"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/systemd"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/timeline"
)

// reportedDir keeps the failures that this boot's units have reported, so that none is reported twice.
const reportedDir = "/run/hardtack/said"

// ReaderUnit reads the user data. It is the first to report an incomplete configuration.
const ReaderUnit = "hardtack-userdata.service"

// NoPhase is for commands that do not end a phase of the boot.
const NoPhase timeline.Phase = ""

// ReadConfig reads the machine's configuration and completes it with the facts of its hardware.
func ReadConfig(root string) (config.Effective, error) {
	root, err := filepath.Abs(root)
	if err != nil {
		return config.Effective{}, err
	}
	h := boot.ReadFacts(root)
	return config.Read(root, config.Hardware{Metadata: h.Metadata, Why: h.Why, UserData: h.Digest})
}

// Works clears the reported failures of the process's unit and of others, and writes a progress line to the console.
// Without a unit, that is, called by a person, it does nothing.
func (s Streams) Works(phase timeline.Phase, others ...string) {
	if s.Unit == "" {
		return
	}
	units := slices.Compact(append([]string{s.Unit}, others...))
	reason.Reporter{Dir: reportedDir}.Clear(units...)
	s.Progress(phase, units...)
}

// Progress writes the progress line for units that work now. Failing to write to the console is not an error.
func (s Streams) Progress(phase timeline.Phase, units ...string) {
	_ = timeline.Progress{Phase: phase, Units: units, At: int64(systemd.Monotonic() / 1000)}.Write(s.Out)
}

// Fail reports an error of a command on the console, and returns the error to print. It does not report a wrong
// command line, which a test of the unit finds.
func (s Streams) Fail(command string, err error) error {
	var usage UsageError
	if errors.As(err, &usage) || errors.Is(err, context.Canceled) {
		return err
	}
	written, writeErr := s.Report(command, err)
	if !written && writeErr == nil {
		return reportedError{err}
	}
	return errors.Join(err, writeErr)
}

// Report writes the line of a failure, once for each cause, even if several units fail for it. command stands for the unit
// where a person runs it. written is false if the line was written before.
func (s Streams) Report(command string, err error) (written bool, writeErr error) {
	if s.Unit == "" {
		return true, reason.Explain(command, err).Write(s.Out)
	}
	return reason.Reporter{Dir: reportedDir}.Report(s.Out, reason.Explain(s.Unit, err))
}
