package lab

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// processFile records a machine's process, in the machine's directory.
const processFile = "process.json"

// leftovers returns the processes of machines that still run although their daemon was killed, because the kernel has
// not ended them with it.
func (h Home) leftovers() ([]Process, error) {
	files, err := filepath.Glob(h.path(machinesDir, "*", processFile))
	if err != nil {
		return nil, fmt.Errorf("looking for processes of a killed daemon: %w", err)
	}
	var found []Process
	for _, f := range files {
		p, err := readProcess(f)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if p.Alive() {
			found = append(found, p)
		}
	}
	return found, nil
}

// sweep ends the processes of a killed daemon and removes the files that have no use without it: disks, volumes,
// secrets. Consoles and journals stay until the lab starts again. The caller holds the lab's lock.
func (h Home) sweep() (ended int, err error) {
	left, err := h.leftovers()
	if err != nil {
		return 0, err
	}
	var errs []error
	for _, p := range left {
		errs = append(errs, p.kill())
	}
	if err := errors.Join(errs...); err != nil {
		return 0, fmt.Errorf("ending processes of a killed daemon: %w", err)
	}
	for _, name := range []string{socketFile, wireSocket, daemonFile, KubeconfigFile, volumesDir, imagesDir} {
		errs = append(errs, os.RemoveAll(h.path(name)))
	}
	for _, pattern := range []string{processFile, OverlayFile} {
		files, err := filepath.Glob(h.path(machinesDir, "*", pattern))
		errs = append(errs, err)
		for _, f := range files {
			errs = append(errs, os.Remove(f))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return 0, fmt.Errorf("removing files of a killed daemon: %w", err)
	}
	return len(left), nil
}

// Clear ends and removes the rest of a killed daemon, and returns how many processes it ended. ErrRunning if the
// daemon runs.
func (h Home) Clear() (ended int, err error) {
	if _, err := os.Stat(h.Dir); errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	lock, err := h.lock()
	if err != nil {
		return 0, err
	}
	defer func() { _ = lock.Close() }()
	ended, err = h.sweep()
	return ended, errors.Join(err, h.removeTemporary())
}

// Delete removes the lab's directory, including consoles and journals. ErrRunning if the daemon runs.
func (h Home) Delete() error {
	if _, err := h.Clear(); err != nil {
		return err
	}
	if err := os.RemoveAll(h.Dir); err != nil {
		return fmt.Errorf("removing the lab: %w", err)
	}
	return nil
}
