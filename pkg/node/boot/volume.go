package boot

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/run"
)

// labelDir is where udev links block devices by the label of their file system.
const labelDir = "/dev/disk/by-label"

// volumeLabels are the labels of a NoCloud volume; FAT tools like to write capitals.
var volumeLabels = []string{"cidata", "CIDATA"}

// The bounds of the search for a volume. udev is done with the disks of a booting machine in well
// under a second; a disk that does not answer must not hold the boot up.
const (
	udevTimeout  = 5 * time.Second
	mountTimeout = 10 * time.Second
)

// readVolume reads the NoCloud volume, once udev has seen every disk.
func (a *agent) readVolume(ctx context.Context) (foundData, error) {
	if a.machine.ec2 && !a.isSelected(sourceVolume) {
		return foundData{}, absentError("not looked for, since " + a.machine.why)
	}
	if a.isMachine(a.before) && !a.isSelected(sourceVolume) {
		return a.readVolumeCopy(ctx)
	}
	a.waitForUdev(ctx)
	for _, label := range volumeLabels {
		link := a.path(filepath.Join(labelDir, label))
		device, err := filepath.EvalSymlinks(link)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return foundData{}, err
		}
		f, err := readDevice(ctx, device)
		if errors.Is(err, fs.ErrNotExist) {
			return foundData{}, absentError(fmt.Sprintf("the volume %s (%s) has no user-data", device, label))
		}
		return f, err
	}
	return foundData{}, absentError("no volume labelled cidata")
}

// readVolumeCopy stands for the volume from the second boot on. A machine that works has volumes of pods, and whoever
// writes to one can label it cidata; so that a volume is read at the first boot only, when no pod can have written to
// any, unless the kernel command line names this source. It is not even mounted.
func (a *agent) readVolumeCopy(ctx context.Context) (foundData, error) {
	for _, label := range volumeLabels {
		if _, err := os.Lstat(a.path(filepath.Join(labelDir, label))); err == nil {
			a.log.WarnContext(ctx, "the volume is not read again: only at a machine's first boot no pod can have written to it", "label", label,
				"to read it", OptionSource+"="+sourceVolume+" on the kernel command line")
		}
	}
	if a.before.Source != sourceVolume {
		return foundData{}, absentError(fmt.Sprintf("only looked for at the first boot, which had user data from another source; %s=%s on the kernel command line reads it all the same",
			OptionSource, sourceVolume))
	}
	data, err := readFile(a.path(volumeCopy))
	if err == nil && digest(data) != a.before.Digest {
		err = fmt.Errorf("%s is not what the first boot wrote", volumeCopy)
	}
	if err != nil {
		return foundData{}, fmt.Errorf("the user data of the volume that was read at the first boot: %w; %s=%s on the kernel command line reads the volume again",
			err, OptionSource, sourceVolume)
	}
	return foundData{from: volumeCopy + ", of the volume at the first boot", data: data, instanceID: a.before.InstanceID, launchIndex: a.before.LaunchIndex}, nil
}

// waitForUdev waits until udev has handled every disk that the kernel has found so far, or the volume is
// there. It matters on the machine itself only.
func (a *agent) waitForUdev(ctx context.Context) {
	if a.root != "/" {
		return
	}
	for _, label := range volumeLabels {
		if _, err := os.Lstat(filepath.Join(labelDir, label)); err == nil {
			return
		}
	}
	if _, err := os.Stat("/run/udev/control"); err != nil {
		return // no udev: a container, whose devices were there before it
	}
	_, err := run.Output(ctx, "udevadm", "settle", "--timeout="+strconv.Itoa(int(udevTimeout.Seconds())),
		"--exit-if-exists="+filepath.Join(labelDir, volumeLabels[0]))
	if err != nil {
		a.log.WarnContext(ctx, "not every disk was there in time: a volume may be missed", "error", err)
	}
}

// readDevice reads a NoCloud file system with a time limit. A read inside the kernel cannot be cancelled, so a device
// that never answers is left behind until the process ends.
func readDevice(ctx context.Context, device string) (foundData, error) {
	type answer struct {
		foundData
		error
	}
	done := make(chan answer, 1)
	go func() {
		kind, err := filesystem(device)
		if err != nil {
			done <- answer{error: fmt.Errorf("volume %s: %w", device, err)}
			return
		}
		f, err := readMounted(device, kind)
		done <- answer{f, err}
	}()
	select {
	case got := <-done:
		return got.foundData, got.error
	case <-time.After(mountTimeout):
		return foundData{}, fmt.Errorf("volume %s: no answer within %v", device, mountTimeout)
	case <-ctx.Done():
		return foundData{}, context.Cause(ctx)
	}
}

// filesystem tells the two file systems that a NoCloud volume can have by their marks: the volume
// descriptor of ISO 9660 in sector 16, and the type field of a FAT boot sector.
func filesystem(device string) (string, error) {
	f, err := os.Open(device)
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }() // only read
	var boot [512]byte
	var iso [5]byte
	if _, err := f.ReadAt(boot[:], 0); err != nil {
		return "", err
	}
	if _, err := f.ReadAt(iso[:], 32769); err == nil && string(iso[:]) == "CD001" {
		return "iso9660", nil
	}
	// FAT12 and FAT16 have it at 54, FAT32 at 82.
	if string(boot[54:57]) == "FAT" || string(boot[82:85]) == "FAT" {
		return "vfat", nil
	}
	return "", errors.New("labelled cidata, but neither vfat nor iso9660")
}
