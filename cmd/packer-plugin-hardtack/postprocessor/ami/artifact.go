package ami

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	packersdk "github.com/hashicorp/packer-plugin-sdk/packer"
	"github.com/hashicorp/packer-plugin-sdk/packer/registry/image"

	"github.com/hardtack/packer-plugin-hardtack/pkg/ami"
)

// BuilderID identifies this post-processor's artifacts to others.
const BuilderID = "hardtack.ami"

var _ packersdk.Artifact = (*Artifact)(nil)

// Artifact is a machine image and its copies.
type Artifact struct {
	published ami.PipelineResult
	source    string
	state     map[string]any
	remove    func(context.Context) error
}

// BuilderId returns BuilderID.
func (*Artifact) BuilderId() string { return BuilderID }

// Files returns nil: the image is on AWS.
func (*Artifact) Files() []string { return nil }

// Id lists the images by region, sorted, as the amazon plugin does: "eu-central-1:ami-1,us-east-1:ami-2".
func (a *Artifact) Id() string {
	var ids []string
	for _, region := range slices.Sorted(maps.Keys(a.published.Images)) {
		ids = append(ids, region+":"+a.published.Images[region])
	}
	return strings.Join(ids, ",")
}

// String lists the image and its copies for the user.
func (a *Artifact) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "AMI %s:", a.published.Name)
	for _, region := range slices.Sorted(maps.Keys(a.published.Images)) {
		fmt.Fprintf(&b, "\n%s: %s", region, a.published.Images[region])
	}
	return b.String()
}

// State returns the metadata for the HCP Packer registry, or generated_data, image_name, snapshot_id, found (whether
// the image existed already), sent_bytes.
func (a *Artifact) State(name string) any {
	if name == image.ArtifactStateURI {
		return a.registry()
	}
	return a.state[name]
}

// registry returns the metadata of one image for each region.
func (a *Artifact) registry() []*image.Image {
	var images []*image.Image
	for _, region := range slices.Sorted(maps.Keys(a.published.Images)) {
		i, err := image.FromArtifact(a, image.WithProvider("aws"), image.WithID(a.published.Images[region]), image.WithRegion(region))
		if err != nil {
			continue // only a missing id or provider fails, and it has both
		}
		i.Labels = maps.Clone(a.published.Tags)
		i.Labels["snapshot_id"], i.Labels["parent_snapshot_id"], i.Labels["source_artifact_id"] = a.published.Snapshot, a.published.Parent, a.source
		images = append(images, i)
	}
	return images
}

// Destroy removes the image, its copies and their snapshots. It leaves an image that existed before the build, and
// returns an error.
func (a *Artifact) Destroy() error {
	if a.published.Found {
		return errors.New("the image existed before this build, and others may use it: hardtack image gc removes unused images")
	}
	// Packer passes no context.
	return a.remove(context.TODO())
}
