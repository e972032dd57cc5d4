// Package lab is a very small region: virtual machines from one baked disk, in groups that keep their
// size, with the network, the metadata, the DNS and the few AWS APIs that EC2 would give them.
//
// Its rule: a machine is told nothing that EC2 would not tell it, but for the address of the region
// itself; and everything of a lab lives in one daemon and below one directory, so that nothing of it
// outlives either.
package lab
