package cluster

import (
	"context"
	"fmt"
	"slices"

	"github.com/hardtack/packer-plugin-hardtack/pkg/ami"
	"github.com/hardtack/packer-plugin-hardtack/pkg/base/account"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
	"github.com/hardtack/packer-plugin-hardtack/pkg/spec"
)

// OpeningsError means that the tag of an image which lists the ports of its units cannot be read. Nothing was changed.
type OpeningsError struct {
	Image string
	Err   error
}

func (e *OpeningsError) Error() string {
	return fmt.Sprintf("reading which ports units of the image %s open, from its tag %s: %v", e.Image, ami.TagPorts, e.Err)
}

func (e *OpeningsError) Unwrap() error { return e.Err }

// Openings are the ports that units of an image open, as its tags say. An image without that tag opens none: it was published by an
// older Hardtack, without its image.json, or by another account, whose tags EC2 does not show. Where the document has roles of an
// operator's own, that is logged. The error is an *OpeningsError, or EC2's.
func (c *Cluster) Openings(ctx context.Context, id string) ([]role.Opening, error) {
	if err := c.readVersions(ctx, id); err != nil {
		return nil, err
	}
	text := account.Tag(c.images[id].Tags, ami.TagPorts)
	if text == "" {
		own := func(g spec.Group) bool { return len(role.Own(g.Roles)) > 0 }
		if slices.ContainsFunc(c.config.Document.Groups, own) {
			c.config.Log.Warn("no tag of the image says which ports its units open: none but Hardtack's own are opened", "image", id, "tag", ami.TagPorts)
		}
		return []role.Opening{}, nil
	}
	list, err := role.ParseOpenings(text)
	if err != nil {
		return nil, &OpeningsError{id, err}
	}
	return list, nil
}
