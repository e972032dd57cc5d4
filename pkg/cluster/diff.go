package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/hardtack/packer-plugin-hardtack/pkg/cluster/cloudformation"
	"github.com/hardtack/packer-plugin-hardtack/pkg/cluster/rollout"
	"github.com/hardtack/packer-plugin-hardtack/pkg/cluster/template"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/machine"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki/authority"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki/store"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// Deployment is the input of a deployment besides the cluster's document.
type Deployment struct {
	// Parameters are values of the template's parameters by name (template.ParameterVPC). A parameter that is left out
	// keeps the stack's value; in a new stack it has the template's default.
	Parameters map[string]string
	// CA is the cluster's public CA in PEM, for the user data. If it is nil, machines read it from the cluster's store.
	CA []byte
	// TemplateURL is the S3 address of the rendered template. If it is empty, the template is sent in the request. One that is too
	// large for that goes through the bucket TemplateBucket of the stack's region, and is a *TooLargeError if that is empty too.
	TemplateURL    string
	TemplateBucket string
	// AnyMachine leaves out the comparison of the document with the image and with EC2's instance types: for a lab, whose machines are
	// of no type, whatever the document says.
	AnyMachine bool
	// Openings are the ports that units of the image open. If it is nil, they are those that the tags of the channel's image say.
	Openings []role.Opening
}

// Diff is the changes that Apply and then Refresh would make.
type Diff struct {
	Stack string `json:"stack"`
	// Creates reports whether the stack does not exist yet.
	Creates bool `json:"creates"`
	// Image is the channel's image, of which machines would be launched.
	Image   string                  `json:"image"`
	Changes []cloudformation.Change `json:"changes"`
	// Refresh are the groups whose machines Refresh would replace after Apply.
	Refresh []Behind `json:"refresh"`
	// Unread are groups that could not be read: whether their machines are out of date is not known.
	Unread []rollout.Unread `json:"unread,omitempty"`
}

// Empty reports whether there is nothing to apply and nothing to refresh.
func (d *Diff) Empty() bool { return len(d.Changes) == 0 && len(d.Refresh) == 0 }

// Behind is a group with machines that differ from the document or the channel.
type Behind struct {
	Group string `json:"group"`
	// Machines are those that differ, out of Of machines. Why lists the differences.
	Machines []string `json:"machines"`
	Of       int      `json:"of"`
	Why      []string `json:"why"`
}

// Diff computes the changes that Apply would make and the machines that Refresh would then replace. It changes nothing.
func (c *Cluster) Diff(ctx context.Context, deploy Deployment) (*Diff, error) {
	d, plan, err := c.plan(ctx, deploy)
	if err != nil {
		return nil, err
	}
	return d, c.stacks.Discard(ctx, plan)
}

// plan makes a change set and computes its effect and that of a refresh. The caller executes or discards it.
func (c *Cluster) plan(ctx context.Context, deploy Deployment) (*Diff, *cloudformation.Plan, error) {
	proposal, err := c.propose(ctx, deploy)
	if err != nil {
		return nil, nil, err
	}
	image, err := c.image(ctx)
	if err != nil {
		return nil, nil, err
	}
	if !deploy.AnyMachine {
		if err := c.fits(ctx, image); err != nil {
			return nil, nil, err
		}
	}
	if body := proposal.Template; len(body) > template.MaxInline { // nothing is uploaded for what is refused
		if proposal.URL, err = c.upload(ctx, deploy.TemplateBucket, []byte(body)); err != nil {
			return nil, nil, err
		}
		proposal.Template = ""
	}
	plan, err := c.stacks.Propose(ctx, proposal)
	if err != nil {
		return nil, nil, err
	}
	d := &Diff{Stack: plan.Stack, Creates: plan.Creates, Image: image, Changes: plan.Changes, Refresh: []Behind{}}
	if !plan.Creates {
		err = c.wouldRefresh(ctx, image, deploy.CA, d)
	}
	if err != nil {
		return nil, nil, errors.Join(err, c.stacks.Discard(ctx, plan))
	}
	return d, plan, nil
}

// propose renders the template and settles its parameters. The template may be too large for a request if there is a bucket for it.
func (c *Cluster) propose(ctx context.Context, deploy Deployment) (cloudformation.Proposal, error) {
	out := cloudformation.Proposal{Stack: c.stack, URL: deploy.TemplateURL, Tags: c.config.Document.Cluster.AWS.Tags}
	if err := c.checkAgreed(ctx); err != nil {
		return out, err
	}
	if deploy.Openings == nil && deploy.TemplateURL == "" {
		image, err := c.image(ctx)
		_, none := errors.AsType[*NoImageError](err) // plan says so, after what is wrong with the parameters
		if err == nil {
			deploy.Openings, err = c.Openings(ctx, image)
		}
		if err != nil && !none {
			return out, err
		}
	}
	tmpl, err := template.Render(c.config.Document, deploy.CA, template.Openings(deploy.Openings))
	if err != nil {
		return out, fmt.Errorf("making the template of %s: %w", c.name, err)
	}
	if out.URL == "" {
		body, err := tmpl.Request()
		if err != nil {
			return out, err
		}
		if len(body) > template.MaxInline && deploy.TemplateBucket == "" {
			return out, &TooLargeError{Stack: c.stack, Region: c.config.AWS.Region, Bytes: len(body), Most: template.MaxInline}
		}
		out.Template = string(body)
	}
	now, err := c.describe(ctx)
	if err != nil {
		return out, err
	}
	var have map[string]string
	if now.Made() {
		have = now.Parameters
	}
	given, err := c.place(ctx, tmpl, now, deploy.Parameters)
	if err != nil {
		return out, err
	}
	settled, err := tmpl.Settle(given, have)
	out.Parameters, out.Keep = settled.Values, settled.Keep
	return out, err
}

// checkAgreed compares the document with the key of the store, and with the values in it that the cluster's members agreed
// on. A machine whose configuration differs from them would stop.
func (c *Cluster) checkAgreed(ctx context.Context) error {
	at, err := store.ParseLocation(c.config.Document.Cluster.Store)
	if err != nil {
		return err
	}
	secrets, err := store.Open(ctx, at, func(context.Context) (aws.Config, error) { return c.config.AWS, nil })
	if err != nil {
		return err
	}
	if s, ok := secrets.(*store.SSM); ok {
		if err := c.checkKey(ctx, s); err != nil {
			return err
		}
	}
	agreed, err := authority.Agreed(ctx, secrets)
	if err != nil {
		return fmt.Errorf("reading what the machines of cluster %s agree on: %w", c.name, err)
	}
	want := c.config.Document.Info()
	if names := want.Etcd.Members; len(agreed.Etcd.Members) == 0 && len(names) > 0 && !slices.Contains(names, machine.LoneMember) {
		return fmt.Errorf("the cluster's only member of etcd is %s, and the document names %s: one of them has to be %[1]s, which keeps the data", machine.LoneMember, strings.Join(names, ", "))
	}
	if !onlyMembers(want, agreed) {
		return authority.Same(want, agreed, secrets)
	}
	return nil
}

// onlyMembers reports whether nothing but the names of etcd's members differs: members can be added, also to the only one that
// had no name for others, and removed by a person's order. There is no way back to a cluster that names none.
func onlyMembers(want, agreed machine.ClusterInfo) bool {
	if len(want.Etcd.Members) == 0 {
		return false
	}
	agreed.Etcd.Members = want.Etcd.Members
	return len(want.Differences(agreed)) == 0
}

// agreeMembers writes the document's names of etcd's members into the cluster's own facts, from which machines have them as
// they boot.
func (c *Cluster) agreeMembers(ctx context.Context) error {
	at, err := store.ParseLocation(c.config.Document.Cluster.Store)
	if err != nil {
		return err
	}
	secrets, err := store.Open(ctx, at, func(context.Context) (aws.Config, error) { return c.config.AWS, nil })
	if err != nil {
		return err
	}
	old, err := secrets.Get(ctx, pki.PublicInfo)
	if err != nil {
		return err
	}
	agreed, err := machine.ParseInfo(pki.PublicInfo, old)
	if err != nil {
		return err
	}
	want := c.config.Document.Info()
	if !onlyMembers(want, agreed) || len(want.Differences(agreed)) == 0 {
		return nil
	}
	data, err := want.Marshal()
	if err != nil {
		return err
	}
	if err := secrets.Swap(ctx, pki.PublicInfo, old, data); err != nil {
		return fmt.Errorf("writing the names of etcd's members for the cluster's machines: %w", err)
	}
	return nil
}

// wouldRefresh compares each running machine with the document and the channel.
func (c *Cluster) wouldRefresh(ctx context.Context, image string, ca []byte, d *Diff) error {
	s, err := c.readOwn(ctx)
	if err != nil {
		return err
	}
	d.Unread = s.Unread
	for _, g := range s.Groups {
		group, err := c.config.Document.Group(g.Key)
		if err != nil {
			continue // the change set removes this group
		}
		if g.Wanted.Config, err = c.config.Document.Hash(g.Key, ca); err != nil {
			return err
		}
		g.Wanted.Image, g.Wanted.Type, g.Types = image, group.AWS.InstanceType, nil
		if group.AWS.Mixed() {
			g.Types = group.AWS.AllTypes()
		}
		b := behindOf(g)
		if remade(d.Changes, g.Template) && len(b.Why) == 0 && len(g.Machines) > 0 {
			b.Why = []string{"launch template"}
			for _, m := range g.Machines {
				b.Machines = append(b.Machines, m.ID)
			}
		}
		if len(b.Machines) > 0 {
			d.Refresh = append(d.Refresh, b)
		}
	}
	return nil
}

func behindOf(g rollout.Group) Behind {
	b := Behind{Group: g.Name, Machines: []string{}, Of: len(g.Machines), Why: g.Why()}
	for _, m := range g.Stale() {
		b.Machines = append(b.Machines, m.ID)
	}
	return b
}

// behind lists the selected groups with machines that are out of date; an empty selection is all groups.
func behind(s rollout.State, only []string) []Behind {
	out := []Behind{}
	for _, g := range s.Groups {
		if b := behindOf(g); len(b.Machines) > 0 && g.Chosen(only) {
			out = append(out, b)
		}
	}
	return out
}

// remade reports whether the launch template with this id gets a new version that changes more than tags.
func remade(changes []cloudformation.Change, id string) bool {
	return slices.ContainsFunc(changes, func(c cloudformation.Change) bool {
		return c.Type == cloudformation.TypeTemplate && c.Action == cloudformation.Modify && c.ID == id &&
			slices.ContainsFunc(c.Properties, func(p cloudformation.Property) bool { return p.Name == "LaunchTemplateData" })
	})
}
