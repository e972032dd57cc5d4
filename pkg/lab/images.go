package lab

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"sync"

	"github.com/hardtack/packer-plugin-hardtack/pkg/awsfake"
	"github.com/hardtack/packer-plugin-hardtack/pkg/disk"
	"github.com/hardtack/packer-plugin-hardtack/pkg/disk/qcow2"
	"github.com/hardtack/packer-plugin-hardtack/pkg/lab/qemu"
)

// imagesDir holds the disks of published images from which machines were started.
const imagesDir = "images"

// Boot is the disk from which a machine starts.
type Boot struct {
	// Path is the disk, which is never changed; Format is "qcow2" or "raw".
	Path, Format string
	// Firmware is empty for UEFI if nothing else starts the disk, and BIOS else.
	Firmware qemu.Firmware
	// Arch is empty for that of the disk.
	Arch string
}

// Complete says how a machine starts, by the disk. A sealed root and a disk for arm64 have UEFI, as on AWS.
func (b Boot) Complete() (Boot, error) {
	kind, err := inspect(b.Path)
	if err != nil {
		return b, err
	}
	b.Arch = cmp.Or(b.Arch, kind.Arch, qemu.AMD64)
	if b.Firmware == "" && (kind.Sealed || b.Arch != qemu.AMD64) {
		b.Firmware = qemu.UEFI
	}
	b.Firmware = cmp.Or(b.Firmware, qemu.BIOS)
	return b, nil
}

func inspect(path string) (disk.Kind, error) {
	d, err := qcow2.Open(path)
	if err != nil {
		return disk.Kind{}, err
	}
	kind, err := disk.Inspect(d)
	if err := errors.Join(err, d.Close()); err != nil {
		return kind, fmt.Errorf("looking for the root on %s: %w", path, err)
	}
	return kind, nil
}

// ArchOf is the architecture of a baked disk, amd64 or arm64; empty where no partition says it.
func ArchOf(path string) (string, error) {
	kind, err := inspect(path)
	return kind.Arch, err
}

// disks are the disks of images. Each is written once, when the first machine of the image starts.
type disks struct {
	home Home

	mu   sync.Mutex
	made map[string]Boot
}

// add makes an existing disk the one from which machines of an image start.
func (k *disks) add(image string, b Boot) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.made[image] = b
}

// bootOf returns the disk from which a machine starts: the one added for its image, else a copy of the published image.
func (k *disks) bootOf(images *awsfake.Images, m awsfake.Machine) (Boot, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if b, ok := k.made[m.Image]; ok {
		return b, nil
	}
	image, ok := images.Image(m.Image)
	if !ok {
		return Boot{}, fmt.Errorf("machine %s: there is no image %s", m.ID, m.Image)
	}
	b := Boot{Path: k.home.path(imagesDir, m.Image+".raw"), Format: "raw"}
	if mode := image.Firmware.BootMode; mode == "uefi" || mode == "uefi-preferred" {
		b.Firmware = qemu.UEFI
	}
	for _, d := range image.Disks {
		if d.Device != image.Root {
			continue
		}
		if err := k.write(images, d.Snapshot, b.Path); err != nil {
			return Boot{}, fmt.Errorf("image %s: %w", m.Image, err)
		}
		k.made[m.Image] = b
		return b, nil
	}
	return Boot{}, fmt.Errorf("image %s has no disk %s to start from", m.Image, image.Root)
}

func (k *disks) write(images *awsfake.Images, snapshot, path string) error {
	if err := os.MkdirAll(k.home.path(imagesDir), 0o700); err != nil {
		return fmt.Errorf("making the images' directory: %w", err)
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return fmt.Errorf("making a disk: %w", err)
	}
	err = errors.Join(images.WriteRaw(snapshot, f), f.Close())
	if err != nil {
		return errors.Join(err, os.Remove(path))
	}
	return nil
}
