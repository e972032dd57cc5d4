package cloud_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/ssm"
	ssmtypes "github.com/aws/aws-sdk-go-v2/service/ssm/types"
	"github.com/aws/smithy-go"

	"github.com/hardtack/packer-plugin-hardtack/pkg/ami"
	"github.com/hardtack/packer-plugin-hardtack/pkg/ami/cloud"
	"github.com/hardtack/packer-plugin-hardtack/pkg/awsfake"
)

const otherChannel, aSecret = "/hardtack/production/image-id", "/hardtack/demo/masters/kubernetes-ca.key"

// foreign is what an account has beside the images of the family "test": an image with a disk, a snapshot that is being
// written, another line's channel, a cluster's key.
type foreign struct {
	image   ami.Result
	pending string
	// secret is a block of the image's disk.
	secret []byte
}

func (w *world) foreign(t *testing.T) foreign {
	t.Helper()
	f := foreign{image: w.publish(t, makeDisk(t, 4*mib, "the database", 0, 2), func(r *ami.Request) { r.Image = "foreign" }), secret: blockOf(2, "the database")}
	var err error
	if f.pending, err = w.client(home).Start(t.Context(), ami.StartRequest{Token: "foreign", Volume: 1, Tags: map[string]string{ami.TagImage: "foreign"}}); err != nil {
		t.Fatal(err)
	}
	for name, value := range map[string]string{otherChannel: f.image.Image, aSecret: "a key"} {
		if _, err := w.account.SSM().Put(awsfake.Parameter{Name: name, Value: value, Type: awsfake.ParameterString}, true); err != nil {
			t.Fatal(err)
		}
	}
	return f
}

// attacks are calls on what is foreign, by name. Each names all that it can as the family's, which is what an attacker does.
func (w *world) attacks(t *testing.T, f foreign) map[string]func() error {
	t.Helper()
	ctx, c, machines := t.Context(), w.client(home), w.machines()
	params := ssm.New(ssm.Options{Region: home, BaseEndpoint: &w.url, Credentials: w.credentials})
	ours := map[string]string{ami.TagImage: "test"}
	tag := []types.Tag{{Key: aws.String(ami.TagImage), Value: aws.String("test")}}
	spec := func(kinds ...types.ResourceType) (list []types.TagSpecification) {
		for _, k := range kinds {
			list = append(list, types.TagSpecification{ResourceType: k, Tags: tag})
		}
		return list
	}
	calls := map[string]func() error{
		"start a snapshot on it": func() error {
			_, err := c.Start(ctx, ami.StartRequest{Token: "child", Volume: f.image.Volume, Parent: f.image.Snapshot, Tags: ours})
			return err
		},
		"copy it": func() error {
			_, err := machines.CopyImage(ctx, &ec2.CopyImageInput{Name: aws.String("copy"), SourceImageId: &f.image.Image, SourceRegion: aws.String(home),
				TagSpecifications: spec(types.ResourceTypeImage, types.ResourceTypeSnapshot)})
			return err
		},
		"register its snapshot": func() error {
			_, err := c.Register(ctx, ami.Registration{Name: "mine", Architecture: "amd64", Snapshot: f.image.Snapshot, Volume: f.image.Volume, Tags: ours})
			return err
		},
		"list its blocks": func() error { _, err := c.List(ctx, f.image.Snapshot); return err },
		"write into it":   func() error { return c.Put(ctx, f.pending, 0, make([]byte, ami.BlockSize), ami.Digest{}) },
		"complete it":     func() error { return c.Complete(ctx, f.pending, 0, ami.Digest{}) },
		"share it": func() error {
			return c.Share(ctx, f.image.Image, ami.LaunchPermissions{Accounts: []string{"111122223333"}})
		},
		"deregister it":       func() error { return c.Deregister(ctx, f.image.Image) },
		"delete its snapshot": func() error { return c.DeleteSnapshot(ctx, f.image.Snapshot) },
		"set another channel": func() error {
			_, err := params.PutParameter(ctx, &ssm.PutParameterInput{Name: aws.String(otherChannel), Value: &f.image.Image, Type: ssmtypes.ParameterTypeString, Overwrite: aws.Bool(true)})
			return err
		},
		"read a key": func() error {
			_, err := params.GetParameter(ctx, &ssm.GetParameterInput{Name: aws.String(aSecret)})
			return err
		},
		"replace a key": func() error {
			_, err := params.PutParameter(ctx, &ssm.PutParameterInput{Name: aws.String(aSecret), Value: aws.String("mine"), Type: ssmtypes.ParameterTypeString, Overwrite: aws.Bool(true)})
			return err
		},
	}
	for what, id := range map[string]string{"image": f.image.Image, "snapshot": f.image.Snapshot, "pending snapshot": f.pending} {
		calls["tag the "+what] = func() error {
			_, err := machines.CreateTags(ctx, &ec2.CreateTagsInput{Resources: []string{id}, Tags: tag})
			return err
		}
		calls["untag the "+what] = func() error {
			_, err := machines.DeleteTags(ctx, &ec2.DeleteTagsInput{Resources: []string{id}, Tags: []types.Tag{{Key: aws.String(ami.TagImage)}}})
			return err
		}
	}
	return calls
}

// denied reports whether AWS has refused a call for want of a permission.
func denied(err error) bool {
	var refusal smithy.APIError
	return errors.As(err, &refusal) && (strings.HasPrefix(refusal.ErrorCode(), "AccessDenied") || refusal.ErrorCode() == "UnauthorizedOperation")
}

// open makes each attack and returns the names of those that are not refused. Tagging comes first: it is what opens more.
func open(attacks map[string]func() error) (names []string) {
	order := slices.SortedFunc(maps.Keys(attacks), func(a, b string) int {
		if strings.HasPrefix(a, "tag ") != strings.HasPrefix(b, "tag ") {
			return map[bool]int{true: -1, false: 1}[strings.HasPrefix(a, "tag ")]
		}
		return strings.Compare(a, b)
	})
	for _, name := range order {
		if err := attacks[name](); !denied(err) {
			names = append(names, name)
		}
	}
	return names
}

// becomeBuilder makes the world's calls those of a user with the printed policy of the family "test", and more statements.
func (w *world) becomeBuilder(t *testing.T, r cloud.PolicyRequest, more ...awsfake.Statement) {
	t.Helper()
	r.Partition, r.Image = "aws", "test"
	text, err := cloud.Policy(r)
	if err != nil {
		t.Fatal(err)
	}
	policy, err := awsfake.ParsePolicy(text)
	if err != nil {
		t.Fatal(err)
	}
	var packed bytes.Buffer
	if err := json.Compact(&packed, text); err != nil || packed.Len() > 6144 {
		t.Errorf("a managed policy has at most 6144 characters, and this one has %d (%v)", packed.Len(), err)
	}
	c := w.account.AddUser("ci", append(policy, more...))
	w.credentials = credentials.NewStaticCredentialsProvider(c.AccessKey, c.Secret, "")
}

// What is foreign is out of reach of the printed policy, also after each call that it allows, whatever those are named.
// What a wider policy opens is what it says that it opens.
func TestPolicyReachesNothingForeign(t *testing.T) {
	for name, tt := range map[string]struct {
		policy cloud.PolicyRequest
		open   []string
	}{
		"default":      {cloud.PolicyRequest{Channels: []string{"stable"}}, nil},
		"with sharing": {cloud.PolicyRequest{Channels: []string{"stable"}, Share: true}, nil},
		"with parents": {cloud.PolicyRequest{Channels: []string{"stable"}, Parents: true}, []string{"start a snapshot on it"}},
		"with copies":  {cloud.PolicyRequest{Channels: []string{"stable"}, Copies: true}, []string{"copy it"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, twoMore())
			f := w.foreign(t)
			w.becomeBuilder(t, tt.policy)
			if got := open(w.attacks(t, f)); !slices.Equal(got, tt.open) {
				t.Errorf("before: open are %q, not %q", got, tt.open)
			}
			file := makeDisk(t, 16*mib, "one", 0, 3, 9)
			for _, what := range []string{"one", "two"} { // the second finds a parent
				writeBlocks(t, file, what, 3)
				_, err := w.ship(t, file, func(j *ami.Pipeline) {
					everywhere(j)
					if !tt.policy.Share {
						j.Permissions = ami.LaunchPermissions{}
					}
					if !tt.policy.Copies {
						j.Copies = nil
					}
				})
				if err != nil {
					t.Fatal(err)
				}
			}
			if got := open(w.attacks(t, f)); !slices.Equal(got, tt.open) {
				t.Errorf("after: open are %q, not %q", got, tt.open)
			}
			if len(tt.open) == 0 {
				w.untouched(t, f)
			}
		})
	}
}

// untouched checks that everything foreign is as it was, and that nothing that the caller can read has its content.
func (w *world) untouched(t *testing.T, f foreign) {
	t.Helper()
	i, ok := w.account.Images().Image(f.image.Image)
	if !ok || i.State != awsfake.ImageAvailable || i.Tags[ami.TagImage] != "foreign" || len(i.Shared) > 0 {
		t.Errorf("the foreign image is now %+v", i)
	}
	if p, _ := w.account.SSM().Parameter(otherChannel); p.Value != f.image.Image {
		t.Errorf("the other channel names %s", p.Value)
	}
	buffer := make([]byte, ami.BlockSize)
	for _, region := range []string{home, away, farther} {
		c, readable := w.client(region), 0
		for _, s := range w.account.ImagesIn(region).Snapshots() {
			blocks, err := c.List(t.Context(), s.ID)
			if err != nil {
				continue
			}
			readable++
			for _, b := range blocks {
				if err := c.Get(t.Context(), s.ID, b, buffer); err != nil || bytes.Equal(buffer, f.secret) {
					t.Errorf("block %d of %s in %s is foreign, or %v", b.Block, s.ID, region, err)
				}
			}
		}
		if want := map[bool]int{true: 2, false: 0}[region == home]; readable != want {
			t.Errorf("%d snapshots can be read in %s, not the %d of the family", readable, region, want)
		}
	}
}

// With the printed policy, a launch template of others that names a parameter keeps nobody from the inventory: AWS's own names no image of
// the account, a channel can be read, and one that may not be read may use any image, until it may.
func TestParametersOfOthers(t *testing.T) {
	const golden = "/golden/al2023"
	for name, tt := range map[string]struct {
		parameter string
		used      bool
		unread    string
		read      bool
	}{
		"AWS's own":          {"/aws/service/ami-amazon-linux-latest/al2023-ami-kernel-default-x86_64", false, "", false},
		"another channel":    {ami.Parameter("production"), true, "", false},
		"of others":          {golden, false, golden, false},
		"a version of it":    {golden + ":1", false, golden + ":1", false},
		"of others, is read": {golden, true, "", true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, awsfake.Options{})
			image := w.publish(t, makeDisk(t, 4*mib, "x", 0)).Image
			for _, parameter := range []string{golden, ami.Parameter("production")} {
				if _, err := w.account.SSM().Put(awsfake.Parameter{Name: parameter, Value: image}, true); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := w.machines().CreateLaunchTemplate(t.Context(), &ec2.CreateLaunchTemplateInput{LaunchTemplateName: aws.String("others"),
				LaunchTemplateData: &types.RequestLaunchTemplateData{ImageId: aws.String("resolve:ssm:" + tt.parameter), InstanceType: types.InstanceTypeT3Medium}}); err != nil {
				t.Fatal(err)
			}
			var more []awsfake.Statement
			if tt.read {
				more = append(more, awsfake.Statement{Actions: []string{"ssm:GetParameter"}, Resources: []string{"arn:aws:ssm:*:*:parameter" + golden}})
			}
			w.becomeBuilder(t, cloud.PolicyRequest{Channels: []string{"stable"}}, more...)
			stock, err := w.client(home).Inventory(t.Context(), "test")
			if err != nil {
				t.Fatal(err)
			}
			who := []string{"launch template others, version 1"}
			if got := stock.UsedBy[image]; slices.Equal(got, who) != tt.used {
				t.Errorf("it is used by %q", got)
			}
			if got := stock.Unread; len(got) > 0 != (tt.unread != "") || tt.unread != "" && !slices.Equal(got[tt.unread], who) {
				t.Errorf("not read are %q", got)
			}
		})
	}
}

// A channel must be named, since a wildcard would be every line's.
func TestPolicyOfNoChannel(t *testing.T) {
	for _, channel := range []string{"*", "stable/../x", ""} {
		if _, err := cloud.Policy(cloud.PolicyRequest{Partition: "aws", Image: "test", Channels: []string{channel}}); err == nil {
			t.Errorf("channel %q is taken", channel)
		}
	}
}
