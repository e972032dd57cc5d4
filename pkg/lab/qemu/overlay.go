package qemu

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/run"
)

// makeOverlays creates the missing overlays. Existing ones are used as they are.
func makeOverlays(ctx context.Context, disks []Disk) error {
	for _, d := range disks {
		if d.Overlay == "" {
			continue
		}
		if _, err := os.Lstat(d.Overlay); err == nil {
			continue
		} else if !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("looking for overlay: %w", err)
		}
		if err := makeOverlay(ctx, d); err != nil {
			return fmt.Errorf("making overlay %s: %w", d.Overlay, err)
		}
	}
	return nil
}

func makeOverlay(ctx context.Context, d Disk) error {
	// A relative name would be relative to the overlay.
	base, err := filepath.Abs(d.Path)
	if err != nil {
		return err
	}
	program, err := exec.LookPath("qemu-img")
	if err != nil {
		return fmt.Errorf("%w (install Debian's package qemu-utils)", err)
	}
	// Created under a temporary name: half an overlay would be taken for a complete one.
	part := d.Overlay + ".part"
	if _, err := run.Output(ctx, program, "create", "-q", "-f", "qcow2", "-F", d.format(), "-b", base, part); err != nil {
		return errors.Join(err, removeIfThere(part))
	}
	if err := os.Rename(part, d.Overlay); err != nil {
		return errors.Join(err, removeIfThere(part))
	}
	return nil
}

func removeIfThere(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
