package ami

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"maps"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/awsname"
)

// CopyRequest describes a copy of an image of another region.
type CopyRequest struct {
	// Token makes the request idempotent.
	Token             string
	Region, Image     string // of the original
	Name, Description string
	// Key encrypts the copy, as in Request.
	Key string
	// Tags are the copy's and its snapshot's.
	Tags map[string]string
}

// LaunchPermissions are the others that may launch an image.
type LaunchPermissions struct {
	// Accounts are 12-digit account ids.
	Accounts []string
	// Organisations are the ARNs of organisations and organisational units.
	Organisations []string
}

func (a LaunchPermissions) empty() bool { return len(a.Accounts)+len(a.Organisations) == 0 }

// Region copies and shares images in one region.
type Region interface {
	// Find is as in Images.
	Find(ctx context.Context, tags map[string]string) ([]Image, error)
	// Copy starts a copy into this region.
	Copy(context.Context, CopyRequest) (image string, err error)
	// WaitImage is as in Images.
	WaitImage(ctx context.Context, image string) error
	// Share adds launch permissions to an image; existing ones stay.
	Share(ctx context.Context, image string, with LaunchPermissions) error
	// Discard deregisters an image and deletes the snapshots that carry these tags and that no image uses.
	Discard(ctx context.Context, image string, tags map[string]string) error
	SnapshotReader
}

// Target is a region that an image is copied to.
type Target struct {
	Region string
	// Key encrypts the copy: NoKey, DefaultKey, or the ARN of a key of that region.
	Key string
}

// CheckDistribution returns all errors at once. home and key are those of the original.
func CheckDistribution(home, key string, targets []Target, with LaunchPermissions) error {
	var errs []error
	wrong := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	seen, unshared := map[string]bool{home: true}, key == DefaultKey
	for _, t := range targets {
		switch {
		case !awsname.IsRegion(t.Region):
			wrong("copy to %q: not a region's name", t.Region)
		case seen[t.Region]:
			wrong("copy to %s: it has the image already, or is named twice", t.Region)
		}
		seen[t.Region] = true
		if t.Key != NoKey && t.Key != DefaultKey && !awsname.IsKey(t.Key) {
			wrong("copy to %s: key %q is neither %q nor the ARN of a KMS key", t.Region, t.Key, DefaultKey)
		}
		if t.Key == NoKey && key != NoKey {
			unshared = true // the copy of an encrypted image is encrypted, with the account's own key unless one is named
		}
		unshared = unshared || t.Key == DefaultKey
	}
	for _, a := range with.Accounts {
		if !awsname.IsAccount(a) {
			wrong("share with %q: not an account's twelve digits", a)
		}
	}
	for _, o := range with.Organisations {
		if !awsname.IsOrganisation(o) {
			wrong("share with %q: not the ARN of an organisation or of a unit", o)
		}
	}
	if !with.empty() && unshared {
		wrong("share: what the account's own key encrypts cannot be launched by others; name a key of yours in every region, and let them use it")
	}
	return errors.Join(errs...)
}

// Distribution copies a published image to regions and shares it.
type Distribution struct {
	// Home is the region of the original. At returns the client of a region.
	Home        string
	At          func(region string) (Region, error)
	Permissions LaunchPermissions
	// Log may be nil.
	Log *slog.Logger
}

// Run copies the image to all targets in parallel, shares every copy, and returns the images by region, including the
// original. If it fails, unfinished copies are removed and finished ones stay.
func (d Distribution) Run(ctx context.Context, original Result, targets []Target) (map[string]string, error) {
	if d.Log == nil {
		d.Log = slog.New(slog.DiscardHandler)
	}
	images := map[string]string{d.Home: original.Image}
	home, err := d.At(d.Home)
	if err != nil {
		return nil, err
	}
	if err := d.share(ctx, home, original.Image); err != nil {
		return images, err
	}
	type made struct {
		region, image string
		err           error
	}
	results := make(chan made)
	for _, t := range targets {
		go func() {
			image, err := d.copy(ctx, original, t)
			results <- made{t.Region, image, err}
		}()
	}
	var errs []error
	for range targets {
		m := <-results
		if m.err != nil {
			errs = append(errs, fmt.Errorf("copying to %s: %w", m.region, m.err))
			continue
		}
		images[m.region] = m.image
	}
	return images, errors.Join(errs...)
}

// copy returns the existing copy in a region, or makes one.
func (d Distribution) copy(ctx context.Context, original Result, t Target) (string, error) {
	region, err := d.At(t.Region)
	if err != nil {
		return "", err
	}
	there, err := region.Find(ctx, map[string]string{TagDigest: original.Digest.String()})
	if err != nil {
		return "", err
	}
	for _, i := range there {
		switch i.State {
		case Failed:
			continue
		case Disabled:
			return "", disabled(i)
		}
		if i.Tags[TagKey] != t.Key {
			return "", fmt.Errorf("%s is there, encrypted with the key %q and not %q: remove it, or leave the key as it was", i.ID, i.Tags[TagKey], t.Key)
		}
		if i, err = settle(ctx, region, i); err != nil {
			return "", err
		}
		if err := original.content.verify(ctx, region, i, DefaultWorkers, nil); err != nil {
			return "", err
		}
		return i.ID, d.share(ctx, region, i.ID)
	}
	return d.makeCopy(ctx, region, original, t)
}

func (d Distribution) makeCopy(ctx context.Context, region Region, original Result, t Target) (string, error) {
	own := maps.Clone(original.Tags)
	own[TagKey] = t.Key
	// The token is unlike any other: to make the same call again is to ask what it has made.
	c := CopyRequest{Token: rand.Text(), Region: d.Home, Image: original.Image, Name: original.Name, Description: original.Description, Key: t.Key, Tags: own}
	image, err := region.Copy(ctx, c)
	if err == nil {
		d.Log.Info("copying", "image", original.Image, "to", t.Region, "as", image)
		err = region.WaitImage(ctx, image)
	}
	if err == nil {
		err = d.share(ctx, region, image)
	}
	if err == nil {
		return image, nil
	}
	clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
	defer cancel()
	if image == "" && ctx.Err() != nil {
		// It may have been carried out, and its answer lost.
		var asked error
		if image, asked = region.Copy(clean, c); asked != nil {
			return "", errors.Join(err, asked)
		}
	}
	if image == "" {
		return "", err
	}
	return "", errors.Join(err, region.Discard(clean, image, map[string]string{TagDigest: original.Digest.String()}))
}

func (d Distribution) share(ctx context.Context, r Region, image string) error {
	if d.Permissions.empty() {
		return nil
	}
	return r.Share(ctx, image, d.Permissions)
}
