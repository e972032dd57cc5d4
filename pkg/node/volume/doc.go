// Package volume finds, attaches, checks, formats and mounts the disk of an etcd member.
//
// Its rule: it never takes a disk away from anybody, and never guesses which disk it has. It neither detaches nor forces
// anything; a volume is the device whose serial number is its id, a file system the one with the expected UUID. Whether a
// disk may be formatted or used is its caller's decision, which knows the records of the store.
package volume
