package lab

import (
	"errors"
	"fmt"
	"os"
	"sync"

	"github.com/hardtack/packer-plugin-hardtack/pkg/awsfake"
	"github.com/hardtack/packer-plugin-hardtack/pkg/qemu"
)

// imagesDir has the disks of the images that machines were started from, as they were published.
const imagesDir = "images"

// Boot is what a machine starts from.
type Boot struct {
	// Path is a disk that is never changed, of this format: "qcow2" or "raw".
	Path, Format string
	Firmware     qemu.Firmware
}

// disks are the images as disks. Each is written once, when the first machine of it starts.
type disks struct {
	daemon *Daemon

	mu   sync.Mutex
	made map[string]Boot
}

// of is what a machine starts from: the disk that the lab was started with, or the image that the machine's launch
// template names, byte for byte as it was published.
func (k *disks) of(m awsfake.Machine) (Boot, error) {
	if !k.daemon.plan.Empty {
		return Boot{Path: k.daemon.config.Image, Format: "qcow2"}, nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if b, ok := k.made[m.Image]; ok {
		return b, nil
	}
	image, ok := k.daemon.region.account.Images().Image(m.Image)
	if !ok {
		return Boot{}, fmt.Errorf("machine %s: there is no image %s", m.ID, m.Image)
	}
	b := Boot{Path: k.daemon.home.path(imagesDir, m.Image+".raw"), Format: "raw"}
	if image.Firmware.BootMode == "uefi" {
		b.Firmware = qemu.UEFI
	}
	for _, d := range image.Disks {
		if d.Device != image.Root {
			continue
		}
		if err := k.write(d.Snapshot, b.Path); err != nil {
			return Boot{}, fmt.Errorf("image %s: %w", m.Image, err)
		}
		k.made[m.Image] = b
		return b, nil
	}
	return Boot{}, fmt.Errorf("image %s has no disk %s to start from", m.Image, image.Root)
}

func (k *disks) write(snapshot, path string) error {
	if err := os.MkdirAll(k.daemon.home.path(imagesDir), 0o700); err != nil {
		return fmt.Errorf("making the images' directory: %w", err)
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return fmt.Errorf("making a disk: %w", err)
	}
	err = errors.Join(k.daemon.region.account.Images().WriteRaw(snapshot, f), f.Close())
	if err != nil {
		return errors.Join(err, os.Remove(path))
	}
	return nil
}
