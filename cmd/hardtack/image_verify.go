package main

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/urfave/cli/v2"

	"github.com/hardtack/packer-plugin-hardtack/pkg/disk"
	"github.com/hardtack/packer-plugin-hardtack/pkg/disk/qcow2"
	"github.com/hardtack/packer-plugin-hardtack/pkg/image/bake"
)

func imageVerifyCommand() *cli.Command {
	return &cli.Command{
		Name:      "verify",
		Usage:     "compute the root hash of a disk with a sealed root from its bytes, and compare it with the disk's hash tree, its kernel image and the image's description",
		ArgsUsage: "DISK",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "manifest", Usage: "the `IMAGE.JSON` with the root hash (default: image.json beside the disk, if it is there)"},
		},
		Action: imageVerify,
	}
}

// verification is the output of `hardtack image verify --json`.
type verification struct {
	disk.Verified
	// Manifest is the description that has the same root hash; empty: there was none to compare with.
	Manifest string `json:"manifest,omitempty"`
}

func imageVerify(c *cli.Context) error {
	if c.NArg() != 1 {
		return usagef("one disk is expected, not %d (see %s --help)", c.NArg(), name(c))
	}
	path := c.Args().First()
	// Read first: a description that cannot be read must not cost the reading of a disk.
	manifest, baked, err := readBeside(path, c.String("manifest"))
	if err != nil {
		return err
	}
	f, err := qcow2.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // only read
	v := verification{}
	if v.Verified, err = disk.VerifySealed(c.Context, f); err != nil {
		return fmt.Errorf("verifying %s: %w", path, err)
	}
	if manifest != "" && baked.RootHash != v.RootHash {
		return fmt.Errorf("verifying %s: its root hash is %s, and %s has %q: this is not the disk that was described", path, v.RootHash, manifest, baked.RootHash)
	}
	v.Manifest = manifest
	if structured(c) {
		return printResult(c, v)
	}
	compared := "no image.json is there to compare it with"
	if manifest != "" {
		compared = "as " + manifest + " says"
	}
	_, err = fmt.Fprintf(c.App.Writer, "root hash %s, %s, %d MB; %s\n", v.RootHash, v.Arch, v.RootSize/1e6, compared)
	return err
}

// readBeside reads the description of a disk: the named one, or the one beside the disk where there is one.
func readBeside(disk, name string) (string, bake.Manifest, error) {
	named := name != ""
	if !named {
		name = filepath.Join(filepath.Dir(disk), "image.json")
	}
	m, err := bake.ReadManifest(name)
	if errors.Is(err, fs.ErrNotExist) && !named {
		return "", m, nil
	}
	if err != nil {
		return "", m, usagef("%w", err)
	}
	return name, m, nil
}
