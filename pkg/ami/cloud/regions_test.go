package cloud_test

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/hardtack/packer-plugin-hardtack/pkg/ami"
	"github.com/hardtack/packer-plugin-hardtack/pkg/ami/cloud"
	"github.com/hardtack/packer-plugin-hardtack/pkg/awsfake"
)

const away, farther = "us-east-1", "eu-central-1"

// Region and Channels make a world the regions of its account.
func (w *world) Region(name string) (ami.Region, error)     { return w.client(name), nil }
func (w *world) Channels(name string) (ami.Channels, error) { return w.client(name), nil }

// machines is EC2's own client.
func (w *world) machines() *ec2.Client {
	return ec2.New(ec2.Options{Region: home, BaseEndpoint: &w.url, Credentials: w.credentials})
}

func twoMore() awsfake.Options {
	o := slow()
	o.Regions, o.EBS.Copy = []string{away, farther}, 30*time.Millisecond
	return o
}

func (w *world) ship(t *testing.T, file string, change ...func(*ami.Pipeline)) (ami.PipelineResult, error) {
	t.Helper()
	j := ami.Pipeline{Request: request(t, file), Home: home}
	for _, f := range change {
		f(&j)
	}
	return ami.RunPipeline(t.Context(), w.publisher(t), w, j, nil)
}

func everywhere(j *ami.Pipeline) {
	j.Copies = []ami.Target{{Region: away}, {Region: farther}}
	j.Permissions = ami.LaunchPermissions{Accounts: []string{"111122223333"}, Organisations: []string{"arn:aws:organizations::444455556666:organization/o-abcdefghij"}}
	j.Channel = "stable"
}

// The whole way, by credentials that may do what hardtack image policy prints and nothing else: published with a key,
// copied, shared, promoted, an image after it, rolled back, collected. What is not of the line is out of reach.
func TestLeastPrivilege(t *testing.T) {
	w := newWorld(t, twoMore())
	keys := map[string]string{}
	for _, region := range []string{home, away, farther} {
		keys[region] = w.account.SSMIn(region).AddKey("alias/images")
	}
	foreign := w.publish(t, makeDisk(t, 4*mib, "x", 0), func(r *ami.Request) { r.Image = "foreign" })
	w.becomeBuilder(t, cloud.PolicyRequest{Keys: slices.Sorted(maps.Values(keys)), Channels: []string{"stable"}, Share: true, Parents: true, Copies: true})
	file := makeDisk(t, 16*mib, "one", 0, 3, 9)
	with := func(j *ami.Pipeline) {
		everywhere(j)
		j.Key = keys[home]
		for i := range j.Copies {
			j.Copies[i].Key = keys[j.Copies[i].Region]
		}
	}
	first, err := w.ship(t, file, with)
	if err != nil {
		t.Fatal(err)
	}
	writeBlocks(t, file, "two", 3)
	second, err := w.ship(t, file, with)
	if err != nil {
		t.Fatal(err)
	}
	if second.Parent != first.Snapshot {
		t.Errorf("the second was made on %q", second.Parent)
	}
	for _, region := range []string{home, away, farther} {
		w.inRegion(t, region, first.Images[region], second.Images[region], keys[region])
		p, err := ami.Rollback(t.Context(), w.client(region), "stable", 0)
		if err != nil || p.Image != first.Images[region] || p.Before != second.Images[region] {
			t.Errorf("rolled back in %s: %+v, %v", region, p, err)
		}
	}
	client := w.client(home)
	stock, err := client.Inventory(t.Context(), "test")
	if err != nil {
		t.Fatal(err)
	}
	w.outOfReach(t, client, foreign)
	removed, err := ami.Remove(t.Context(), client, ami.Collect(stock, ami.Rules{Shared: true, Now: time.Now()}))
	if err != nil || len(removed) != 1 || removed[0].Image != second.Image {
		t.Errorf("removed %+v, %v", removed, err)
	}
}

// inRegion checks an image and its copies.
func (w *world) inRegion(t *testing.T, region, first, second, key string) {
	t.Helper()
	for _, id := range []string{first, second} {
		i, ok := w.account.ImagesIn(region).Image(id)
		if !ok || i.State != awsfake.ImageAvailable || len(i.Shared) != 2 || i.Tags[ami.TagKey] != key || i.Tags[ami.TagImage] != "test" {
			t.Errorf("in %s: %+v", region, i)
			continue
		}
		s, _ := w.account.ImagesIn(region).Snapshot(i.Disks[0].Snapshot)
		if s.Key != key || s.Tags[ami.TagImage] != "test" {
			t.Errorf("its snapshot in %s: %+v", region, s)
		}
	}
	if p, _ := w.account.SSMIn(region).Parameter("/hardtack/stable/image-id"); p.Value != second {
		t.Errorf("in %s the channel names %s, not %s", region, p.Value, second)
	}
}

// outOfReach checks what the policy does not allow.
func (w *world) outOfReach(t *testing.T, c *cloud.Client, foreign ami.Result) {
	t.Helper()
	for what, err := range map[string]error{
		"deregister":  c.Deregister(t.Context(), foreign.Image),
		"share":       c.Share(t.Context(), foreign.Image, ami.LaunchPermissions{Accounts: []string{"111122223333"}}),
		"delete":      c.DeleteSnapshot(t.Context(), foreign.Snapshot),
		"write":       c.Put(t.Context(), foreign.Snapshot, 0, make([]byte, ami.BlockSize), ami.Digest{}),
		"begin other": second(c.Start(t.Context(), ami.StartRequest{Token: "x", Volume: 1, Tags: map[string]string{ami.TagImage: "foreign"}})),
	} {
		if err == nil || !strings.Contains(err.Error(), "hardtack image policy") {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := c.List(t.Context(), foreign.Snapshot); err == nil {
		t.Error("another line's blocks can be listed")
	}
}

func second(_ string, err error) error { return err }

// Everything again finds everything, and changes nothing.
func TestShipTwice(t *testing.T) {
	w := newWorld(t, twoMore())
	file := makeDisk(t, 16*mib, "one", 0, 3, 9)
	first, err := w.ship(t, file, everywhere)
	if err != nil {
		t.Fatal(err)
	}
	again, err := w.ship(t, file, everywhere)
	if err != nil {
		t.Fatal(err)
	}
	if !maps.Equal(first.Images, again.Images) || !again.Found {
		t.Errorf("%v, and then %v", first.Images, again.Images)
	}
	for region, p := range again.Promotions {
		if p.Changed || p.Version != 1 {
			t.Errorf("in %s: %+v", region, p)
		}
	}
	calls := w.account.Calls()
	if calls["ec2:CopyImage"] != 2 || calls["ssm:PutParameter"] != 3 || calls["ebs:StartSnapshot"] != 1 {
		t.Errorf("the calls were %v", calls)
	}
}

// Ctrl-C while the copies are made, before the call was carried out, after it, and while they are waited for: the
// original stays, which is ready, and of the copies nothing does.
func TestCopyInterrupted(t *testing.T) {
	for name, carried := range map[string]bool{"before": false, "after": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, twoMore())
			file := makeDisk(t, 16*mib, "one", 0, 3, 9)
			original := w.publish(t, file)
			ctx, cancel := context.WithCancel(t.Context())
			g := w.guard(t, &gate{})
			g.before = func(_ *http.Request, _ int, action string, body []byte) ([]byte, error) {
				if action == "CopyImage" && ctx.Err() == nil && !carried {
					cancel()
					return nil, errGone
				}
				return body, nil
			}
			g.after = func(_ int, action string) {
				if action == "CopyImage" && carried {
					cancel()
				}
			}
			d := ami.Distribution{Home: home, At: w.Region}
			if _, err := d.Run(ctx, original, []ami.Target{{Region: away}, {Region: farther}}); !errors.Is(err, context.Canceled) {
				t.Errorf("it ended with %v", err)
			}
			w.only(t, original.Image)
			for _, region := range []string{away, farther} {
				if images, snapshots := w.account.ImagesIn(region).List(), w.account.ImagesIn(region).Snapshots(); len(images)+len(snapshots) != 0 {
					t.Errorf("in %s there are %v and %v", region, images, snapshots)
				}
			}
		})
	}
}

// A channel is rolled back step by step; to a version; and not to what is not there.
func TestChannels(t *testing.T) {
	w := newWorld(t, slow())
	c := w.client(home)
	var images []string
	for _, what := range []string{"a", "b", "c"} {
		r := w.publish(t, makeDisk(t, 4*mib, what, 0), func(r *ami.Request) { r.Parent = ami.NoParent })
		images = append(images, r.Image)
		if p, err := ami.Promote(t.Context(), c, "stable", r.Image); err != nil || !p.Changed || p.Image != r.Image {
			t.Fatalf("%+v, %v", p, err)
		}
	}
	now := func() string {
		p, _ := w.account.SSM().Parameter("/hardtack/stable/image-id")
		if p.DataType != "aws:ec2:image" {
			t.Errorf("the parameter's data type is %q", p.DataType)
		}
		return p.Value
	}
	for _, want := range []string{images[1], images[0]} {
		if _, err := ami.Rollback(t.Context(), c, "stable", 0); err != nil || now() != want {
			t.Errorf("rolled back to %s, %v, want %s", now(), err, want)
		}
	}
	if _, err := ami.Rollback(t.Context(), c, "stable", 0); err == nil || now() != images[0] {
		t.Errorf("rolled back beyond the first: %s, %v", now(), err)
	}
	if _, err := ami.Rollback(t.Context(), c, "stable", 3); err != nil || now() != images[2] {
		t.Errorf("rolled back to version 3: %s, %v", now(), err)
	}
	for what, f := range map[string]func() (ami.Promotion, error){
		"no such version": func() (ami.Promotion, error) { return ami.Rollback(t.Context(), c, "stable", 99) },
		"no such channel": func() (ami.Promotion, error) { return ami.Rollback(t.Context(), c, "other", 0) },
		"no such image": func() (ami.Promotion, error) {
			return ami.Promote(t.Context(), c, "stable", "ami-00000000000000000")
		},
	} {
		if p, err := f(); err == nil || now() != images[2] {
			t.Errorf("%s: %+v, %s", what, p, now())
		}
	}
}

// What uses an image is found: any version of a template, by the image or by a parameter, and instances.
func TestUsers(t *testing.T) {
	w := newWorld(t, slow())
	c := w.client(home)
	var images []string
	for _, what := range []string{"template", "old version", "parameter", "version of a parameter", "instance", "nobody"} {
		r := w.publish(t, makeDisk(t, 4*mib, what, 0), func(r *ami.Request) { r.Parent = ami.NoParent })
		images = append(images, r.Image)
	}
	machines := w.machines()
	template := func(name string, versions ...string) {
		t.Helper()
		for n, image := range versions {
			data := &types.RequestLaunchTemplateData{ImageId: &image, InstanceType: types.InstanceTypeT3Medium}
			var err error
			if n == 0 {
				_, err = machines.CreateLaunchTemplate(t.Context(), &ec2.CreateLaunchTemplateInput{LaunchTemplateName: &name, LaunchTemplateData: data})
			} else {
				_, err = machines.CreateLaunchTemplateVersion(t.Context(), &ec2.CreateLaunchTemplateVersionInput{LaunchTemplateName: &name, LaunchTemplateData: data})
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, image := range []string{images[3], images[2]} {
		if _, err := ami.Promote(t.Context(), c, "stable", image); err != nil {
			t.Fatal(err)
		}
	}
	template("masters", images[1], images[0])
	template("minions", "resolve:ssm:/hardtack/stable/image-id")
	template("etcd", "resolve:ssm:/hardtack/stable/image-id:1", "resolve:ssm:/hardtack/gone/image-id")
	if _, err := machines.RunInstances(t.Context(), &ec2.RunInstancesInput{
		ImageId: &images[4], InstanceType: types.InstanceTypeT3Medium, MinCount: aws.Int32(1), MaxCount: aws.Int32(1),
	}); err != nil {
		t.Fatal(err)
	}
	stock, err := c.Inventory(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{"launch template masters, version 2", "launch template masters, version 1", "launch template minions, version 1", "launch template etcd, version 1", "instance i-", ""} {
		if got := strings.Join(stock.UsedBy[images[i]], "; "); !strings.HasPrefix(got, want) || want == "" && got != "" {
			t.Errorf("%s is used by %q, want %q", images[i], got, want)
		}
	}
	removed, err := ami.Remove(t.Context(), c, ami.Collect(stock, ami.Rules{Now: time.Now()}))
	if err != nil || len(removed) != 1 || removed[0].Image != images[5] {
		t.Errorf("removed %+v, %v", removed, err)
	}
	w.only(t, images[:5]...)
}

// A channel that a person or Terraform has made as plain text, even with a newline at its end, names an image as any other does. What is
// named so is never removed, and neither is what such a channel would roll back to; parameters of other names and types are no channels.
func TestPlainTextChannels(t *testing.T) {
	w := newWorld(t, awsfake.Options{})
	c := w.client(home)
	var images []string
	for i := range 5 {
		r := w.publish(t, makeDisk(t, 8*mib, "v"+strconv.Itoa(i), 0))
		images = append(images, r.Image)
	}
	for _, p := range []awsfake.Parameter{
		{Name: ami.Parameter("plain"), Value: images[0]}, {Name: ami.Parameter("plain"), Value: images[1] + "\n"},
		{Name: "/hardtack/demo/image", Value: images[2]}, {Name: "/elsewhere" + ami.Parameter("plain"), Value: images[2]},
		{Name: ami.Parameter("secret"), Value: images[2], Type: "SecureString"},
	} {
		if _, err := w.account.SSM().Put(p, true); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := ami.Promote(t.Context(), c, "stable", images[3]); err != nil {
		t.Fatal(err)
	}
	stock, err := c.Inventory(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	if got := slices.Sorted(maps.Keys(stock.Channels)); !slices.Equal(got, []string{"plain", "stable"}) {
		t.Errorf("the channels are %q", got)
	}
	if got := stock.ChannelsNaming(images[1]); !slices.Equal(got, []string{"plain"}) {
		t.Errorf("%s is named by %q", images[1], got)
	}
	if _, err := ami.Remove(t.Context(), c, ami.Collect(stock, ami.Rules{Now: time.Now()})); err != nil {
		t.Fatal(err)
	}
	w.only(t, images[0], images[1], images[3])
}
