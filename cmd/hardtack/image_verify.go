package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"

	"github.com/urfave/cli/v2"

	"github.com/hardtack/packer-plugin-hardtack/pkg/ami"
	"github.com/hardtack/packer-plugin-hardtack/pkg/ami/cloud"
	"github.com/hardtack/packer-plugin-hardtack/pkg/disk"
	"github.com/hardtack/packer-plugin-hardtack/pkg/disk/qcow2"
	"github.com/hardtack/packer-plugin-hardtack/pkg/image/bake"
)

func imageVerifyCommand() *cli.Command {
	return &cli.Command{
		Name:      "verify",
		Usage:     "compute the root hash of a disk with a sealed root from its bytes, or of an AMI from the blocks of its snapshot, and compare it with the hash tree, the kernel image, and the image's description or tag",
		ArgsUsage: "DISK|AMI",
		Flags: append(awsFlags(),
			&cli.StringFlag{Name: "manifest", Usage: "the `IMAGE.JSON` with the root hash (default: image.json beside the disk, if it is there; for an AMI none)"},
			&cli.IntFlag{Name: "parallel", Value: ami.DefaultWorkers, Usage: "of an AMI, read `N` blocks of 512 KiB at once"},
		),
		Action: imageVerify,
	}
}

// verification is the output of `hardtack image verify --json`.
type verification struct {
	disk.Verified
	// Image and Snapshot are those of an AMI, empty for a disk.
	Image    string `json:"image,omitempty"`
	Snapshot string `json:"snapshot,omitempty"`
	// Manifest is the description that has the same root hash, and Tag the AMI's tag that has it; empty: there was none to compare
	// with.
	Manifest string `json:"manifest,omitempty"`
	Tag      string `json:"tag,omitempty"`
}

// imageID is the form of an AMI's id (EC2 User Guide, "Resource IDs"). A file of such a name is given as ./ami-….
var imageID = regexp.MustCompile(`^ami-([0-9a-f]{8}|[0-9a-f]{17})$`)

func imageVerify(c *cli.Context) error {
	if c.NArg() != 1 {
		return usagef("one disk or AMI is expected, not %d (see %s --help)", c.NArg(), name(c))
	}
	if n := c.Int("parallel"); n < 1 || n > 1000 {
		return usagef("--parallel %d: 1 to 1000", n)
	}
	what, beside := c.Args().First(), ""
	ofAMI := imageID.MatchString(what)
	if !ofAMI {
		beside = filepath.Join(filepath.Dir(what), "image.json")
	}
	// Read first: a description that cannot be read must not cost the reading of a disk.
	manifest, baked, err := readManifest(c.String("manifest"), beside)
	if err != nil {
		return err
	}
	v := verification{}
	if ofAMI {
		v, err = verifyAMI(c, what)
	} else {
		v, err = verifyDisk(c, what)
	}
	if err != nil {
		return fmt.Errorf("verifying %s: %w", what, err)
	}
	if manifest != "" {
		if err := v.differs(baked.RootHash, baked.EFIPartition, "this is not the disk that was described"); err != nil {
			return fmt.Errorf("verifying %s, comparing it with %s: %w", what, manifest, err)
		}
	}
	v.Manifest = manifest
	if structured(c) {
		return printResult(c, v)
	}
	_, err = fmt.Fprintf(c.App.Writer, "root hash %s, %s, %d MB; %s\n", v.RootHash, v.Arch, v.RootSize/1e6, v.compared())
	return err
}

// differs returns an error that names each digest that is another than what was said of the disk; an empty one was not said.
func (v verification) differs(rootHash, efiPartition, so string) error {
	var wrong []error
	if rootHash != v.RootHash {
		wrong = append(wrong, fmt.Errorf("its root hash is %s, and not %q: %s", v.RootHash, rootHash, so))
	}
	if efiPartition != "" && efiPartition != v.EFIPartition {
		wrong = append(wrong, fmt.Errorf("the sha256 of its EFI partition is %s, and not %s: the kernel, or what opens the root, is another: %s", v.EFIPartition, efiPartition, so))
	}
	return errors.Join(wrong...)
}

// compared says what has the same root hash.
func (v verification) compared() string {
	switch {
	case v.Manifest != "" && v.Tag != "":
		return "as " + v.Manifest + " and the tag " + v.Tag + " say"
	case v.Manifest != "":
		return "as " + v.Manifest + " says"
	case v.Tag != "":
		return "as the tag " + v.Tag + " says"
	case v.Image != "":
		return "it has no tag " + ami.TagRootHash + " to compare it with"
	}
	return "no image.json is there to compare it with"
}

func verifyDisk(c *cli.Context, path string) (verification, error) {
	f, err := qcow2.Open(path)
	if err != nil {
		return verification{}, err
	}
	defer func() { _ = f.Close() }() // only read
	bar := newProgress(c.App.ErrWriter)
	defer bar.finish()
	v, err := disk.VerifySealed(c.Context, f, phases{bar})
	return verification{Verified: v}, err
}

// verifyAMI brings the blocks of an AMI's snapshot into a temporary file, and verifies that as a disk.
func verifyAMI(c *cli.Context, id string) (v verification, err error) {
	account, err := cloud.Open(c.Context, c.String("region"), cloud.Options{Connections: c.Int("parallel")}, atEndpoint(c)...)
	if err != nil {
		return v, err
	}
	client := account.Client(account.Home)
	image, err := client.Image(c.Context, id)
	if err != nil {
		return v, err
	}
	if image.State != ami.Available || image.Snapshot == "" {
		return v, fmt.Errorf("its state in %s is %s (hardtack image list shows the images of a region)", account.Home, image.State)
	}
	f, err := os.CreateTemp("", "hardtack-verify-")
	if err != nil {
		return v, fmt.Errorf("a file for its blocks: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close(), os.Remove(f.Name())) }()
	bar := newProgress(c.App.ErrWriter)
	defer bar.finish()
	if v.Verified, err = verifySnapshot(c.Context, client, image, f, c.Int("parallel"), phases{bar}); err != nil {
		return v, err
	}
	v.Image, v.Snapshot = image.ID, image.Snapshot
	tag, tagged := image.Tags[ami.TagRootHash]
	if !tagged {
		return v, nil
	}
	v.Tag = ami.TagRootHash
	if err := v.differs(tag, image.Tags[ami.TagEFIPartition], "the tags or the snapshot are another image's"); err != nil {
		return v, fmt.Errorf("comparing it with its tags %s and %s: %w", ami.TagRootHash, ami.TagEFIPartition, err)
	}
	return v, nil
}

func verifySnapshot(ctx context.Context, s ami.SnapshotReader, image ami.Image, f *os.File, workers int, p phases) (disk.Verified, error) {
	if err := f.Truncate(image.Volume * ami.GiB); err != nil { // sparse: the holes are the zeros that no block holds
		return disk.Verified{}, fmt.Errorf("a file for its blocks: %w", err)
	}
	if err := ami.Fetch(ctx, s, image.Snapshot, f, workers, p); err != nil {
		return disk.Verified{}, err
	}
	return disk.VerifySealed(ctx, f, p)
}

// readManifest reads the named description, or, without a name, the one beside a disk where there is one.
func readManifest(named, beside string) (string, bake.Manifest, error) {
	if named == "" && beside == "" {
		return "", bake.Manifest{}, nil
	}
	file := named
	if named == "" {
		file = beside
	}
	m, err := bake.ReadManifest(file)
	if errors.Is(err, fs.ErrNotExist) && named == "" {
		return "", m, nil
	}
	if err != nil {
		return "", m, usagef("%w", err)
	}
	return file, m, nil
}
