// Package ami publishes a disk image as a machine image (AMI): it writes the changed blocks of the disk to a snapshot,
// registers an image of the snapshot, and manages channels, copies in other regions, and old images.
//
// Its rule: plan first, then send. A [Manifest] holds the digests of a disk's blocks; a [Plan] lists the blocks that
// the parent snapshot does not have. The same disk with the same properties always gets the same name, so that an image
// that already exists is found and not published again.
//
// The manifest is stored in the snapshot itself, in the blocks behind the end of the disk: whoever can read the
// snapshot can read its manifest, and there is no second object to keep or to lose. The volume is therefore up to one
// GiB larger than the disk.
package ami
