package ami

import (
	"cmp"
	"crypto/sha256"
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/awsname"
)

// The tags that images and their snapshots carry. What they say never changes.
const (
	// TagImage is the image family: successive images of the same name, each with the one before as its parent.
	TagImage = "hardtack:image"
	// TagDigest is Request.Identity.
	TagDigest = "hardtack:digest"
	// TagDisk is the disk's size in bytes; the manifest is in the blocks after it.
	TagDisk = "hardtack:disk-size"
	// TagKey is the requested key.
	TagKey = "hardtack:key"
	// TagKubernetes is the version of Kubernetes in the image, as v1.36.3: a fact of its manifest. An image that was published without
	// its image.json has no such tag, and neither has one of another account, whose tags EC2 does not show.
	TagKubernetes = tagPrefix + "kubernetes"
	// TagRoles are the roles that units of the image name, an operator's own too, as role.Set writes them: a fact of its manifest.
	TagRoles = tagPrefix + "roles"
	// TagRootHash is the root hash of a sealed root in hexadecimal digits: a fact of its manifest.
	TagRootHash = tagPrefix + "root-hash"
	// TagEFIPartition is the sha256 of a sealed disk's EFI partition in hexadecimal digits: a fact of its manifest.
	TagEFIPartition = tagPrefix + "efi-sha256"
	// TagPorts are the ports that units of the image open, as role.FormatOpenings writes them: a fact of its manifest.
	TagPorts = tagPrefix + "ports"
	// tagPrefix is reserved: no tag of the operator may begin with it.
	tagPrefix = "hardtack:"
)

// Values of Request.Key that are not the ARN of a key.
const (
	// NoKey leaves encryption to the account's settings.
	NoKey = ""
	// DefaultKey is the account's own key for volumes, alias/aws/ebs. Images encrypted with it cannot be shared.
	DefaultKey = "default"
)

// Values of Request.Parent that are not the id of an image.
const (
	// NewestParent selects the newest suitable image of the same family.
	NewestParent = ""
	// NoParent sends every block.
	NoParent = "none"
)

// Request describes an image to publish.
type Request struct {
	Disk Disk
	// Image is the name of the image family: "hardtack" results in images named hardtack-<digest>.
	Image string
	// Architecture is amd64 or arm64.
	Architecture string
	// Key is NoKey, DefaultKey, or the ARN of a KMS key.
	Key string
	// Volume is the minimum size of the root volume in GiB; 0 is the smallest that holds the disk.
	Volume int64
	// Parent is NewestParent, NoParent, or an image's id.
	Parent string
	// Description of the image; empty is a default that names the digest.
	Description string
	// Tags are the operator's tags. Facts describe the content and become tags with the prefix hardtack:, as in
	// hardtack:kubernetes.
	Tags, Facts map[string]string
	// UEFI says that the disk does not start by BIOS, as one with a sealed root.
	UEFI bool
	// SecureBoot is the certificate, in DER, that the firmware of the image's machines starts signed programs by; they have a TPM then.
	// Empty is firmware without Secure Boot. It takes UEFI.
	SecureBoot []byte
	// Keep leaves an unfinished snapshot in place after an error, so that the next attempt can resume it.
	Keep bool
}

// imageName leaves room for the digest in the 128 characters that AWS allows.
var imageName = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9./_-]{0,98}[A-Za-z0-9])?$`)

// reservedTags is how many of an image's 50 tags Hardtack uses, including Name and facts.
const reservedTags = 11

// Check returns all errors at once.
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
	if r.Key != NoKey && r.Key != DefaultKey && !awsname.IsKey(r.Key) {
		wrong("key %q: neither %q nor the ARN of a KMS key (arn:aws:kms:REGION:ACCOUNT:key/ID)", r.Key, DefaultKey)
	}
	if r.Volume < 0 || r.Volume > 16384 {
		wrong("volume of %d GiB: a gp3 volume has at most 16384", r.Volume)
	}
	if len(r.SecureBoot) > 0 {
		if _, err := x509.ParseCertificate(r.SecureBoot); err != nil {
			wrong("the certificate for Secure Boot: %w", err)
		}
		if !r.UEFI {
			wrong("a certificate for Secure Boot: only what starts by UEFI alone takes it")
		}
	}
	if len(r.Tags) > 50-reservedTags {
		wrong("%d tags: at most %d fit beside Hardtack's own", len(r.Tags), 50-reservedTags)
	}
	for _, key := range slices.Sorted(maps.Keys(r.Tags)) {
		if key == "" || len(key) > 127 || len(r.Tags[key]) > 255 || strings.HasPrefix(key, tagPrefix) || strings.HasPrefix(strings.ToLower(key), "aws:") {
			wrong("tag %q: keys have 1 to 127 characters, values at most 255, and %q and \"aws:\" are not the operator's", key, tagPrefix)
		}
	}
	return errors.Join(errs...)
}

// Identity is the digest of everything that distinguishes an image: the disk, and how it is registered. The description
// and the operator's tags are not part of it.
func (r Request) Identity(m Manifest) Digest {
	text := fmt.Appendf(nil, "hardtack image 1\ndisk %s\nvolume %d\narchitecture %s\nkey %s\n", m.Digest(), r.volume(m), r.Architecture, r.Key)
	if len(r.SecureBoot) > 0 {
		text = fmt.Appendf(text, "secure boot %x\n", sha256.Sum256(r.SecureBoot))
	}
	return sha256.Sum256(text)
}

// Name is the name of the image: the family and the identity.
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
