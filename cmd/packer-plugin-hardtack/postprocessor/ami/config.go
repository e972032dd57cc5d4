//go:generate go tool packer-sdc mapstructure-to-hcl2 -type Config,Copy
//go:generate go tool packer-sdc struct-markdown

package ami

import (
	"cmp"
	"fmt"

	"github.com/hashicorp/packer-plugin-sdk/common"
	"github.com/hashicorp/packer-plugin-sdk/template/config"
	"github.com/hashicorp/packer-plugin-sdk/template/interpolate"

	"github.com/hardtack/packer-plugin-hardtack/pkg/ami"
)

// Config is the configuration of `post-processor "hardtack-ami"`. Nothing is required: credentials and the region are
// found as by the AWS command line, in the environment, in its files, or from the instance's profile.
type Config struct {
	common.PackerConfig `mapstructure:",squash"`
	Image               `mapstructure:",squash"`
	Reach               `mapstructure:",squash"`
	Transfer            `mapstructure:",squash"`

	ctx interpolate.Context
}

// Image describes the machine image.
type Image struct {
	// The disk image, qcow2 or raw. The default is the artifact's file that ends with `.qcow2`, or else with `.raw`.
	Disk string `mapstructure:"disk"`
	// The name of the image family. The image's name is this and a digest of the disk and of the registered settings,
	// so that the same disk is published once. The default is `hardtack`.
	ImageName string `mapstructure:"image_name"`
	// Debian's name of the architecture: `amd64` or `arm64`. The default is that of the artifact's `image.json`, or of
	// the one beside the disk.
	Architecture string `mapstructure:"architecture"`
	// The image's description.
	Description string `mapstructure:"description"`
	// Tags of the image and its snapshot, beside those that begin with `hardtack:`.
	Tags map[string]string `mapstructure:"tags"`
	// The size of the root volume in GiB. The default, and the minimum, is the size of the disk and the list of its
	// blocks behind it: a disk of whole GiB gets one more, one of `8191M` gets 8.
	VolumeSize int64 `mapstructure:"volume_size"`
	// The ARN of a KMS key that encrypts the image, or `default` for the account's default key, which other accounts
	// cannot use. If it is empty, the account's settings decide.
	KmsKey string `mapstructure:"kms_key"`
}

// Reach selects the regions of the image and the accounts that may use it.
type Reach struct {
	// The region where the image is made. The default is the region of the environment or the profile.
	Region string `mapstructure:"region"`
	// Copy the image to another region. See [below](#copies).
	Copy []Copy `mapstructure:"copy"`
	// Accounts that may launch the image and its copies.
	ShareAccounts []string `mapstructure:"share_accounts"`
	// ARNs of organisations and organisational units that may launch the image and its copies.
	ShareOrganisations []string `mapstructure:"share_organisations"`
	// The channel to point at the image in the end, in every region: the parameter `/hardtack/<channel>/image-id`.
	Channel string `mapstructure:"channel"`
}

// Copy is a region to which the image is copied.
type Copy struct {
	// The region.
	Region string `mapstructure:"region" required:"true"`
	// The KMS key of that region that encrypts the copy, as in `kms_key`.
	KmsKey string `mapstructure:"kms_key"`
}

// Transfer configures the upload of the disk.
type Transfer struct {
	// The id of the image on whose snapshot the new one is based, so that only changed blocks are sent, or `none`. The
	// default is the newest suitable image of the same name.
	Parent string `mapstructure:"parent"`
	// The number of blocks of 512 KiB that are sent at once; as many are held in memory. The default is 64.
	Parallel int `mapstructure:"parallel"`
	// The directory for the state of unfinished work in one account and region, from which the next build continues after
	// a crash. The default is that of the account and the region below `hardtack/publish` in the user's state directory.
	StateDirectory string `mapstructure:"state_directory"`
	// Keep the unfinished snapshot for the next build also if the build fails or is cancelled. Without it, nothing is
	// left.
	KeepUnfinished bool `mapstructure:"keep_unfinished"`
}

// unknown is Packer's placeholder for a value that is not known while a template is validated.
const unknown = "<unknown>"

func (c *Config) prepare(raws []any) error {
	err := config.Decode(c, &config.DecodeOpts{PluginType: "hardtack-ami", Interpolate: true, InterpolateContext: &c.ctx}, raws...)
	if err != nil {
		return err
	}
	c.ImageName = cmp.Or(c.ImageName, "hardtack")
	c.Parallel = cmp.Or(c.Parallel, ami.DefaultWorkers)
	if c.Parallel < 1 || c.Parallel > 1000 {
		return fmt.Errorf("parallel: %d is not between 1 and 1000", c.Parallel)
	}
	return nil
}

// job returns the job of the configuration, without the disk and the artifact's facts.
func (c *Config) job() ami.Pipeline {
	j := ami.Pipeline{
		Request: ami.Request{
			Image: c.ImageName, Architecture: c.Architecture, Key: c.KmsKey, Volume: c.VolumeSize, Parent: c.Parent,
			Description: c.Description, Tags: c.Tags, Keep: c.KeepUnfinished,
		},
		Home: c.Region, Channel: c.Channel, Permissions: ami.LaunchPermissions{Accounts: c.ShareAccounts, Organisations: c.ShareOrganisations},
	}
	for _, to := range c.Copy {
		j.Copies = append(j.Copies, ami.Target{Region: to.Region, Key: to.KmsKey})
	}
	return j
}
