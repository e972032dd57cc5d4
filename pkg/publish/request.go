package publish

import (
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// The tags that images and their snapshots carry. What they say never changes.
const (
	// TagImage is the name's part that the operator chose: what is one line of images, each made from the one before.
	TagImage = "hardtack:image"
	// TagDigest stands for the disk and all properties: Identity.
	TagDigest = "hardtack:digest"
	// TagDisk is the disk's size in bytes: the manifest is in the blocks behind it.
	TagDisk = "hardtack:disk-size"
	// TagKey is the key that was asked for.
	TagKey = "hardtack:key"
	// tagPrefix is ours: no tag of the operator's begins with it.
	tagPrefix = "hardtack:"
)

// The keys that are no key's ARN.
const (
	// NoKey leaves encryption to the account's settings.
	NoKey = ""
	// DefaultKey is the account's own key for volumes, alias/aws/ebs. What it encrypts cannot be shared.
	DefaultKey = "default"
)

// Parents that are no image's id.
const (
	// NewestParent is the newest image of the same line that can be one.
	NewestParent = ""
	// NoParent sends everything.
	NoParent = "none"
)

// Request says what is to be published.
type Request struct {
	Disk Disk
	// Image names the line of images: "hardtack" makes hardtack-<digest>.
	Image string
	// Architecture is amd64 or arm64.
	Architecture string
	// Key is NoKey, DefaultKey, or the ARN of a KMS key.
	Key string
	// Volume is the root volume's size in GiB; zero, or less than what is needed, is what is needed.
	Volume int64
	// Parent is NewestParent, NoParent, or an image's id.
	Parent string
	// Description is the operator's; empty is one that names the digest.
	Description string
	// Tags are the operator's; Facts are what the bake says of the disk, and become tags of ours: "kubernetes" is
	// hardtack:kubernetes.
	Tags, Facts map[string]string
	// Keep leaves the unfinished snapshot where it is when something fails, for the next try to go on with.
	Keep bool
}

var (
	// imageName leaves room for the digest in the 128 characters that AWS allows.
	imageName = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9./_-]{0,98}[A-Za-z0-9])?$`)
	keyARN    = regexp.MustCompile(`^arn:aws[a-z-]*:kms:[a-z0-9-]+:\d{12}:key/[A-Za-z0-9-]+$`)
)

// reserved is how many of an image's 50 tags are ours, with Name and facts.
const reserved = 10

// Check reports everything that is wrong at once.
func (r Request) Check() error {
	var errs []error
	wrong := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if r.Disk == nil || r.Disk.Size() <= 0 {
		wrong("disk: there is none, or it is empty")
	}
	if !imageName.MatchString(r.Image) {
		wrong("image %q: not a name (letters, digits, and . / _ - between them, at most 100)", r.Image)
	}
	if r.Architecture != "amd64" && r.Architecture != "arm64" {
		wrong("architecture %q: neither amd64 nor arm64", r.Architecture)
	}
	if r.Key != NoKey && r.Key != DefaultKey && !keyARN.MatchString(r.Key) {
		wrong("key %q: neither %q nor the ARN of a KMS key (arn:aws:kms:REGION:ACCOUNT:key/ID)", r.Key, DefaultKey)
	}
	if r.Volume < 0 || r.Volume > 16384 {
		wrong("volume of %d GiB: a gp3 volume has at most 16384", r.Volume)
	}
	if len(r.Tags) > 50-reserved {
		wrong("%d tags: at most %d fit beside Hardtack's own", len(r.Tags), 50-reserved)
	}
	for _, key := range slices.Sorted(maps.Keys(r.Tags)) {
		if key == "" || len(key) > 127 || len(r.Tags[key]) > 255 || strings.HasPrefix(key, tagPrefix) || strings.HasPrefix(strings.ToLower(key), "aws:") {
			wrong("tag %q: keys have 1 to 127 characters, values at most 255, and %q and \"aws:\" are not the operator's", key, tagPrefix)
		}
	}
	return errors.Join(errs...)
}

// Identity stands for everything that makes an image the same: the disk, and how it is registered. Descriptions and
// the operator's tags are not part of it.
func (r Request) Identity(m Manifest) Digest {
	disk := m.Digest()
	return sha256.Sum256(fmt.Appendf(nil, "hardtack image 1\ndisk %s\nvolume %d\narchitecture %s\nkey %s\n",
		disk, r.volume(m), r.Architecture, r.Key))
}

// Name is what the image is called.
func (r Request) Name(m Manifest) string {
	return r.Image + "-" + r.Identity(m).String()[:16]
}

func (r Request) volume(m Manifest) int64 { return max(r.Volume, m.Volume()) }

func (r Request) description(m Manifest) string {
	return cmp.Or(r.Description, "Hardtack, disk sha256:"+m.Digest().String())
}

// tags are those of the image and its snapshot.
func (r Request) tags(m Manifest) map[string]string {
	tags := map[string]string{
		"Name": r.Name(m), TagImage: r.Image, TagDigest: r.Identity(m).String(),
		TagDisk: strconv.FormatInt(m.Size, 10), TagKey: r.Key,
	}
	for key, value := range r.Facts {
		tags[tagPrefix+key] = value
	}
	maps.Copy(tags, r.Tags)
	return tags
}
