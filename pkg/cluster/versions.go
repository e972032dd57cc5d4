package cluster

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"

	"github.com/hardtack/packer-plugin-hardtack/pkg/ami"
	"github.com/hardtack/packer-plugin-hardtack/pkg/base/account"
	"github.com/hardtack/packer-plugin-hardtack/pkg/base/awserr"
	"github.com/hardtack/packer-plugin-hardtack/pkg/cluster/autoscaling"
	"github.com/hardtack/packer-plugin-hardtack/pkg/cluster/rollout"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// ImageVersionError refuses an image of another minor version of Kubernetes than the document's: its flags and fields were checked
// against those of another version. Nothing was changed.
type ImageVersionError struct {
	Channel, Image string
	// Kubernetes is the image's version, as v1.35.4; Document is the document's minor version, as 1.36.
	Kubernetes, Document string
}

func (e *ImageVersionError) Error() string {
	return fmt.Sprintf("applying a document of Kubernetes %s: the image of channel %s, %s, has Kubernetes %s", e.Document, e.Channel, e.Image, e.Kubernetes)
}

// Held is a group of minions that goes on launching machines of the version before, until the masters have the new one.
type Held struct {
	// Group is the group's name in AutoScaling, Version the version of its launch template, and Kubernetes that of its image.
	Group      string `json:"group"`
	Version    int    `json:"version"`
	Kubernetes string `json:"kubernetes"`
}

// readVersions reads images and their versions of Kubernetes, each once: no tag of an image that Hardtack made ever changes. A version that
// is not known is empty; an image that EC2 does not show is read again.
func (c *Cluster) readVersions(ctx context.Context, images ...string) error {
	var ids []string
	for _, id := range images {
		if _, known := c.images[id]; !known && id != "" && !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	if len(ids) == 0 {
		return nil
	}
	slices.Sort(ids)
	found, err := account.Images(ctx, ec2.NewFromConfig(c.config.AWS), ids)
	if err != nil {
		return fmt.Errorf("reading what images need, and which version of Kubernetes they have: %w", awserr.Explain(err, "ec2:DescribeImages"))
	}
	for _, id := range ids {
		c.kubernetes[id] = ""
	}
	for _, i := range found {
		c.images[aws.ToString(i.ImageId)] = i
		if v := account.Tag(i.Tags, ami.TagKubernetes); rollout.Known(v) {
			c.kubernetes[aws.ToString(i.ImageId)] = v
		}
	}
	return nil
}

// addVersions fills in the versions of Kubernetes of a reading.
func (c *Cluster) addVersions(ctx context.Context, s rollout.State) error {
	var images []string
	for _, g := range s.Groups {
		images = append(images, g.Launches.Image, g.Wanted.Image)
		for _, m := range g.Machines {
			images = append(images, m.Image, m.From.Image)
		}
	}
	if err := c.readVersions(ctx, images...); err != nil {
		return err
	}
	for i := range s.Groups {
		g := &s.Groups[i]
		g.Launches.Kubernetes, g.Wanted.Kubernetes = c.kubernetes[g.Launches.Image], c.kubernetes[g.Wanted.Image]
		for k := range g.Machines {
			m := &g.Machines[k]
			m.From.Kubernetes = c.kubernetes[m.From.Image]
			m.Kubernetes = c.kubernetes[cmp.Or(m.Image, m.From.Image)]
		}
	}
	return nil
}

// warnUnknown says, once each, of which images the version is not known, so that nothing was compared with it.
func (c *Cluster) warnUnknown(s rollout.State, more ...string) {
	images := more
	for _, g := range s.Groups {
		for _, m := range g.Machines {
			if g.Roles.Has(role.Masters) || g.Roles.Has(role.Minions) {
				images = append(images, cmp.Or(m.Image, m.From.Image))
			}
		}
	}
	for _, id := range images {
		if version, read := c.kubernetes[id]; read && version == "" && !c.warned[id] {
			c.warned[id] = true
			c.config.Log.Warn("the version of Kubernetes in an image is not known, and whether it goes with the others is not checked", "image", id, "missing", "the tag "+ami.TagKubernetes)
		}
	}
}

// refuse is the error about these skews; nil if there are none, or they are allowed.
func (c *Cluster) refuse(skews []rollout.Skew, allowed bool) error {
	if len(skews) == 0 {
		return nil
	}
	if !allowed {
		return &rollout.SkewError{Skews: skews}
	}
	for _, s := range skews {
		c.config.Log.Warn("Kubernetes does not support these versions together: " + s.String())
	}
	return nil
}

// checkRollout refuses to replace machines if versions of Kubernetes would meet that do not go together.
func (c *Cluster) checkRollout(ctx context.Context, s rollout.State, o RefreshOptions) error {
	if err := c.addVersions(ctx, s); err != nil {
		return err
	}
	to := map[string]string{}
	var images []string
	for _, g := range s.Groups {
		if g.Chosen(o.Groups) && g.Behind() {
			to[g.Name] = g.Wanted.Kubernetes
			images = append(images, g.Wanted.Image)
		}
	}
	if len(to) == 0 {
		return nil
	}
	c.warnUnknown(s, images...)
	return c.refuse(s.Skews(to), o.AllowSkew)
}

// checkVersion refuses an image whose version of Kubernetes is not the document's. The error is an *ImageVersionError.
func (c *Cluster) checkVersion(ctx context.Context, image string) error {
	if err := c.readVersions(ctx, image); err != nil {
		return err
	}
	version, document := c.kubernetes[image], c.config.Document.Cluster.Version
	if version != "" && !strings.HasPrefix(version, "v"+document+".") {
		return &ImageVersionError{Channel: c.Channel(), Image: image, Kubernetes: version, Document: document}
	}
	return nil
}

// checkApply refuses an image that does not go with the document, or with the machines that run: from an apply on, groups launch
// machines of it. The groups of minions that there are do so later (holdBack), unless they grow.
func (c *Cluster) checkApply(ctx context.Context, s rollout.State, image string, allowed bool) error {
	if err := c.checkVersion(ctx, image); err != nil {
		return err
	}
	version := c.kubernetes[image]
	if err := c.addVersions(ctx, s); err != nil {
		return err
	}
	c.warnUnknown(s, image)
	control, grow := map[string]string{}, map[string]string{}
	grown := rollout.State{Cluster: s.Cluster, Groups: slices.Clone(s.Groups)}
	for _, g := range s.Groups {
		if g.Roles.Has(role.Masters) {
			control[g.Name] = version
		}
	}
	for _, g := range c.config.Document.Groups {
		name := c.config.Document.AutoScaling(g)
		i := slices.IndexFunc(s.Groups, func(have rollout.Group) bool { return have.Name == name })
		switch {
		case !g.Roles.Has(role.Minions) || g.Roles.Has(role.Masters) || s.HasUnread(name):
		case i < 0:
			grown.Groups = append(grown.Groups, rollout.Group{Name: name, Key: g.Name, Roles: g.Roles})
			grow[name] = version
		case g.Size > s.Groups[i].Desired:
			grow[name] = version
		}
	}
	return c.refuse(append(s.Skews(control), grown.Skews(grow)...), allowed)
}

// holdBack has the groups of minions go on launching machines from an earlier version of their launch template, while machines of the
// one that an apply has made would have kubelets newer than a master's API server: before are the machines before it. A refresh of the
// masters, and then of these groups, ends that. Between the stack's change of a group and this one, the group launches the new version.
func (c *Cluster) holdBack(ctx context.Context, before rollout.State) (held []Held, err error) {
	api := before.OldestAPI()
	if api == "" {
		return nil, nil // there is no master yet, or nobody knows of which version
	}
	machines, err := c.own(ctx)
	if err != nil {
		return nil, err
	}
	s, err := machines.Read(ctx)
	if err != nil {
		return nil, err
	}
	if err := c.addVersions(ctx, s); err != nil {
		return nil, err
	}
	for _, g := range s.Groups {
		if !g.Roles.Has(role.Minions) || g.Roles.Has(role.Masters) || !rollout.Newer(g.Wanted.Kubernetes, api) {
			continue
		}
		to, err := c.goesWith(ctx, machines, g, api)
		switch {
		case err != nil:
			return held, err
		case to.Number == 0:
			c.config.Log.Warn("until the masters have the same version, this group launches kubelets that are newer than their API servers", "group", g.Name, "kubelet", g.Wanted.Kubernetes, "oldest_api_server", api)
			continue
		case to.Number != g.Launches.Number:
			if err := machines.Point(ctx, g.Name, to.Number); err != nil {
				return held, fmt.Errorf("having %s launch kubelets of %s until the masters have %s: %w", g.Name, to.Kubernetes, g.Wanted.Kubernetes, err)
			}
		}
		held = append(held, Held{Group: g.Name, Version: to.Number, Kubernetes: to.Kubernetes})
	}
	return held, nil
}

// goesWith is the newest version of a group's launch template whose kubelet is not newer than an API server; its number is 0 if there
// is none.
func (c *Cluster) goesWith(ctx context.Context, machines *autoscaling.Cluster, g rollout.Group, api string) (rollout.Version, error) {
	all, err := machines.Versions(ctx, g.Name)
	if err != nil {
		return rollout.Version{}, err
	}
	var images []string
	for _, v := range all {
		images = append(images, v.Image)
	}
	if err := c.readVersions(ctx, images...); err != nil {
		return rollout.Version{}, err
	}
	for _, v := range slices.Backward(all) {
		if v.Kubernetes = c.kubernetes[v.Image]; v.Kubernetes != "" && !rollout.Newer(v.Kubernetes, api) {
			return v, nil
		}
	}
	return rollout.Version{}, nil
}
