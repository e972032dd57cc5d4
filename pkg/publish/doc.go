// Package publish makes a machine image of a disk image: it sends what is new of the disk to a snapshot, makes an
// image of that, and keeps channels, copies and old images in order.
//
// Its rule: what is sent is decided by values before anything is sent. A disk is its [Manifest], the digests of its
// blocks; a [Plan] is what of it an older snapshot does not have; and the same disk with the same properties has the
// same name, by which it is found instead of being published again.
//
// The manifest is kept in the snapshot itself, in the blocks behind the disk's end. So it is there as long as the
// snapshot is, for whoever may read that, and there is no second thing to keep, to find or to lose. The volume is
// larger than the disk for that: by nothing where the disk is no whole number of GiB, otherwise by one.
package publish
