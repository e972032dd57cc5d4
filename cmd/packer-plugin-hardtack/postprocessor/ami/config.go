//go:generate go tool packer-sdc mapstructure-to-hcl2 -type Config,Copy
//go:generate go tool packer-sdc struct-markdown

package ami

import (
	"cmp"
	"fmt"

	"github.com/hashicorp/packer-plugin-sdk/common"
	"github.com/hashicorp/packer-plugin-sdk/template/config"
	"github.com/hashicorp/packer-plugin-sdk/template/interpolate"

	"github.com/hardtack/packer-plugin-hardtack/pkg/publish"
)

// Config is what a template can say in `post-processor "hardtack-ami"`. Nothing is required: credentials and the region
// are found as by the AWS command line, in the environment, in its files, or from the instance's profile.
type Config struct {
	common.PackerConfig `mapstructure:",squash"`
	Image               `mapstructure:",squash"`
	Reach               `mapstructure:",squash"`
	Transfer            `mapstructure:",squash"`

	ctx interpolate.Context
}

// Image says what is made.
type Image struct {
	// The disk image, qcow2 or raw. The default is that of the artifact: the file that ends with `.qcow2`, or else
	// with `.raw`.
	Disk string `mapstructure:"disk"`
	// The line of images: the image is called this, and a digest that stands for the disk and all that is registered
	// with it. The same disk is published once. The default is `hardtack`.
	ImageName string `mapstructure:"image_name"`
	// Debian's name of the architecture: `amd64` or `arm64`. The default is what the `image.json` of the artifact
	// says, or the one beside the disk.
	Architecture string `mapstructure:"architecture"`
	// The image's description.
	Description string `mapstructure:"description"`
	// Tags of the image and its snapshot, beside those that begin with `hardtack:`.
	Tags map[string]string `mapstructure:"tags"`
	// The size of the root volume in GiB. The default, and the least, is what the disk needs with the list of its
	// blocks behind it: a disk of whole GiB gets one more, one of `8191M` gets 8.
	VolumeSize int64 `mapstructure:"volume_size"`
	// Encrypt the image: the ARN of a KMS key, or `default` for the account's own, which others cannot use. Left
	// empty, the account's settings decide.
	KmsKey string `mapstructure:"kms_key"`
}

// Reach says where the image goes and who may use it.
type Reach struct {
	// The region where the image is made. The default is that of the environment or the profile.
	Region string `mapstructure:"region"`
	// Copy the image to another region. See [below](#copies).
	Copy []Copy `mapstructure:"copy"`
	// Accounts that may launch the image and its copies.
	ShareAccounts []string `mapstructure:"share_accounts"`
	// Organisations and organisational units that may, by their ARNs.
	ShareOrganisations []string `mapstructure:"share_organisations"`
	// Have the channel of this name, the parameter `/hardtack/<channel>/image-id`, name the image in the end, in
	// every region.
	Channel string `mapstructure:"channel"`
}

// Copy is a region that gets a copy.
type Copy struct {
	// The region.
	Region string `mapstructure:"region" required:"true"`
	// Encrypt the copy with a key of that region, as `kms_key`.
	KmsKey string `mapstructure:"kms_key"`
}

// Transfer says how the disk is sent.
type Transfer struct {
	// The image whose snapshot is built upon, so that only what has changed is sent: an image's id, or `none`. The
	// default is the newest image of the same name that will do.
	Parent string `mapstructure:"parent"`
	// How many blocks of 512 KiB are sent at once; as many are held in memory. The default is 64.
	Parallel int `mapstructure:"parallel"`
	// Where unfinished work is written down, for the next build to go on from after a crash. The default is
	// `hardtack/publish` in the user's state directory.
	StateDirectory string `mapstructure:"state_directory"`
	// Also when the build fails or is cancelled, keep the unfinished snapshot for the next one. Without it, nothing
	// stays behind.
	KeepUnfinished bool `mapstructure:"keep_unfinished"`
}

// unknown stands for a value that is not known yet while a template is validated.
const unknown = "<unknown>"

func (c *Config) prepare(raws []any) error {
	err := config.Decode(c, &config.DecodeOpts{PluginType: "hardtack-ami", Interpolate: true, InterpolateContext: &c.ctx}, raws...)
	if err != nil {
		return err
	}
	c.ImageName = cmp.Or(c.ImageName, "hardtack")
	c.Parallel = cmp.Or(c.Parallel, publish.DefaultWorkers)
	if c.Parallel < 1 || c.Parallel > 1000 {
		return fmt.Errorf("parallel: %d is not between 1 and 1000", c.Parallel)
	}
	return nil
}

// job is what is to be done; the disk, and what the artifact says of it, are not in it yet.
func (c *Config) job() publish.Job {
	j := publish.Job{
		Request: publish.Request{
			Image: c.ImageName, Architecture: c.Architecture, Key: c.KmsKey, Volume: c.VolumeSize, Parent: c.Parent,
			Description: c.Description, Tags: c.Tags, Keep: c.KeepUnfinished,
		},
		Home: c.Region, Channel: c.Channel, With: publish.Audience{Accounts: c.ShareAccounts, Organisations: c.ShareOrganisations},
	}
	for _, to := range c.Copy {
		j.Copies = append(j.Copies, publish.Target{Region: to.Region, Key: to.KmsKey})
	}
	return j
}
