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

	"github.com/hardtack/packer-plugin-hardtack/pkg/publish"
)

// BuilderID is how post-processors know this one's artifacts.
const BuilderID = "hardtack.ami"

var _ packersdk.Artifact = (*Artifact)(nil)

// Artifact is a machine image and its copies.
type Artifact struct {
	shipped publish.Shipped
	source  string
	state   map[string]any
	remove  func(context.Context) error
}

// BuilderId returns BuilderID.
func (*Artifact) BuilderId() string { return BuilderID }

// Files returns none: the image is AWS's.
func (*Artifact) Files() []string { return nil }

// Id lists the images as the amazon plugin does, by region and in order: "eu-central-1:ami-1,us-east-1:ami-2".
func (a *Artifact) Id() string {
	var ids []string
	for _, region := range slices.Sorted(maps.Keys(a.shipped.Images)) {
		ids = append(ids, region+":"+a.shipped.Images[region])
	}
	return strings.Join(ids, ",")
}

// String tells the user what there is.
func (a *Artifact) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "AMI %s:", a.shipped.Name)
	for _, region := range slices.Sorted(maps.Keys(a.shipped.Images)) {
		fmt.Fprintf(&b, "\n%s: %s", region, a.shipped.Images[region])
	}
	return b.String()
}

// State returns what the registry of HCP Packer asks for, and generated_data, image_name, snapshot_id, found (whether
// the image was there already), sent_bytes.
func (a *Artifact) State(name string) any {
	if name == image.ArtifactStateURI {
		return a.registry()
	}
	return a.state[name]
}

// registry is one image for each region.
func (a *Artifact) registry() []*image.Image {
	var images []*image.Image
	for _, region := range slices.Sorted(maps.Keys(a.shipped.Images)) {
		i, err := image.FromArtifact(a, image.WithProvider("aws"), image.WithID(a.shipped.Images[region]), image.WithRegion(region))
		if err != nil {
			continue // it has an id and a provider; there is nothing else to go wrong
		}
		i.Labels = maps.Clone(a.shipped.Tags)
		i.Labels["snapshot_id"], i.Labels["parent_snapshot_id"], i.Labels["source_artifact_id"] = a.shipped.Snapshot, a.shipped.Parent, a.source
		images = append(images, i)
	}
	return images
}

// Destroy removes the image and its copies with their snapshots. One that was there before is left alone.
func (a *Artifact) Destroy() error {
	if a.shipped.Found {
		return errors.New("the image was there before this build, and others may use it: hardtack image gc removes what nobody does")
	}
	// Packer gives no context for this.
	return a.remove(context.TODO())
}
