//go:build linux

package builder

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hashicorp/packer-plugin-sdk/multistep"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/file"
	"github.com/hardtack/packer-plugin-hardtack/pkg/disk"
	"github.com/hardtack/packer-plugin-hardtack/pkg/disk/debian"
	"github.com/hardtack/packer-plugin-hardtack/pkg/image/bake"
	"github.com/hardtack/packer-plugin-hardtack/pkg/image/provenance"
)

// stepCompose makes the disk from the root directory, in the working directory.
type stepCompose struct{ *job }

func (s *stepCompose) Run(ctx context.Context, state multistep.StateBag) multistep.StepAction {
	s.ui.Say("Making the disk...")
	if err := s.compose(ctx); err != nil {
		return s.halt(ctx, state, err)
	}
	return multistep.ActionContinue
}

func (s *stepCompose) Cleanup(multistep.StateBag) {}

func (s *stepCompose) compose(ctx context.Context) error {
	if err := debian.Clean(s.root.Dir(), s.options); err != nil {
		return err
	}
	size, err := s.config.size()
	if err != nil {
		return fmt.Errorf("disk_size: %w", err)
	}
	work := filepath.Join(s.work, "disk")
	if err := os.Mkdir(work, 0o755); err != nil {
		return fmt.Errorf("directory for the disk: %w", err)
	}
	sealed, err := s.sealed()
	if err != nil {
		return err
	}
	composer := disk.Composer{
		Root: s.root.Dir(), Work: work,
		Inside: s.tools.Bind(disk.AtRoot, s.root.Dir()).Bind(disk.AtWork, work),
		Options: disk.Options{
			Arch: s.config.Arch, Size: size, KernelArguments: s.config.KernelArguments,
			Epoch: s.base.Epoch, Sealed: sealed, Progress: s.say,
		},
	}
	if s.disk, err = composer.Compose(ctx); err != nil {
		return err
	}
	return s.formats(ctx)
}

// sealed says how the root is sealed; nil is not at all.
func (s *stepCompose) sealed() (*disk.Sealed, error) {
	if !s.config.sealed() {
		return nil, nil
	}
	init, err := s.program("hardtack-init", s.config.Arch)
	if err != nil {
		return nil, err
	}
	return &disk.Sealed{Init: init, Baked: bake.JournalPath, Packages: s.config.Packages, Key: s.config.SecureBootKey, Certificate: s.config.SecureBootCertificate}, nil
}

// formats converts the disk to the formats to publish.
func (s *stepCompose) formats(ctx context.Context) error {
	for _, format := range s.config.Formats {
		if disk.Format(format) != disk.QCOW2 {
			continue
		}
		s.ui.Say("Converting to qcow2...")
		out := filepath.Join(s.work, "disk", "disk."+format)
		if err := disk.Convert(ctx, s.disk.File, out, !s.config.SkipCompression); err != nil {
			return err
		}
	}
	return nil
}

// stepPublish moves the finished files into the output directory.
type stepPublish struct{ *job }

func (s *stepPublish) Run(ctx context.Context, state multistep.StateBag) multistep.StepAction {
	if err := s.publish(); err != nil {
		return s.halt(ctx, state, err)
	}
	return multistep.ActionContinue
}

func (s *stepPublish) Cleanup(multistep.StateBag) {}

// publish leaves the images with their description, or nothing: beside the description of another image, a disk would be
// published with the other one's root hash.
func (s *stepPublish) publish() error {
	if err := os.MkdirAll(s.config.OutputDirectory, 0o755); err != nil {
		return fmt.Errorf("output directory: %w", err)
	}
	if err := s.clear(); err != nil {
		return fmt.Errorf("removing the description of the image before: %w", err)
	}
	err := s.move()
	if err == nil {
		err = s.describe()
	}
	if err != nil {
		return errors.Join(err, remove(s.images), remove(s.beside))
	}
	return nil
}

// clear removes what describes an image that is replaced. The new one need not have the same files.
func (s *stepPublish) clear() error {
	for _, path := range append(bake.Descriptions(), provenance.File) {
		err := os.Remove(filepath.Join(s.config.OutputDirectory, filepath.Base(path)))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

func (s *stepPublish) move() error {
	for _, format := range s.config.Formats {
		target := s.config.image(disk.Format(format))
		if err := os.Rename(filepath.Join(s.work, "disk", "disk."+format), target); err != nil {
			return fmt.Errorf("moving the image into place: %w", err)
		}
		s.images = append(s.images, target)
		s.ui.Sayf("%s: %s", target, describeSize(target))
	}
	return nil
}

// describe writes the image's description beside it. It runs last, since a description without its image would be wrong.
// An image without Hardtack has none.
func (s *stepPublish) describe() error {
	for _, path := range bake.Descriptions() {
		content, err := file.ReadWithin(s.root.Dir(), strings.TrimPrefix(path, "/"))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil && path == bake.ManifestPath && s.disk.RootHash != "" {
			content, err = s.sealed(content)
		}
		if err == nil {
			err = s.putBeside(filepath.Base(path), content)
		}
		if err != nil {
			return fmt.Errorf("bringing back %s: %w", path, err)
		}
	}
	return s.prove()
}

// sealed adds to a manifest what only the finished disk says.
func (s *stepPublish) sealed(manifest []byte) ([]byte, error) {
	var certificate []byte
	if s.config.SecureBootKey != "" {
		pair, err := tls.LoadX509KeyPair(s.config.SecureBootCertificate, s.config.SecureBootKey)
		if err != nil {
			return nil, err
		}
		certificate = pair.Certificate[0]
	}
	return bake.WithSeal(manifest, s.disk.RootHash, s.disk.EFIPartition, certificate)
}

// putBeside writes a file into the output directory, at once or not at all.
func (s *stepPublish) putBeside(name string, content []byte) error {
	target := filepath.Join(s.config.OutputDirectory, name)
	if err := os.WriteFile(filepath.Join(s.work, name), content, 0o644); err != nil {
		return err
	}
	if err := os.Rename(filepath.Join(s.work, name), target); err != nil {
		return err
	}
	s.beside = append(s.beside, target)
	s.ui.Say(target)
	return nil
}

// prove writes the provenance of an image that has a manifest.
func (s *stepPublish) prove() error {
	manifest := filepath.Join(s.config.OutputDirectory, filepath.Base(bake.ManifestPath))
	if !slices.Contains(s.beside, manifest) {
		return nil
	}
	made := provenance.Bake{Release: s.base.Release.Digests, Epoch: s.base.Epoch}
	var err error
	if made.Manifest, err = bake.ReadManifest(manifest); err != nil {
		return err
	}
	if made.Parameters, err = s.config.parameters(); err != nil {
		return err
	}
	if made.Disks, err = digests(s.images); err != nil {
		return err
	}
	if made.Descriptions, err = digests(s.beside); err != nil {
		return err
	}
	text, err := made.Statement()
	if err != nil {
		return err
	}
	if err := s.putBeside(provenance.File, text); err != nil {
		return fmt.Errorf("writing the provenance: %w", err)
	}
	return nil
}

// digests are those of files, by their names without directories.
func digests(files []string) ([]provenance.Digest, error) {
	var list []provenance.Digest
	for _, name := range files {
		sum, err := file.SHA256(name)
		if err != nil {
			return nil, fmt.Errorf("writing the provenance: %w", err)
		}
		list = append(list, provenance.Digest{Name: filepath.Base(name), SHA256: sum})
	}
	return list, nil
}

func remove(files []string) error {
	var errs []error
	for _, name := range files {
		errs = append(errs, os.Remove(name))
	}
	return errors.Join(errs...)
}
