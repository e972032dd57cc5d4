// Package lab is a very small AWS region: virtual machines of one baked disk, in groups that keep their size, with the
// network, the metadata, the DNS and the few AWS APIs that EC2 would give them.
//
// The region's content is made as on AWS: the cluster by its stack (pkg/cluster/template), the function by its own
// template (pkg/dns/shipped).
//
// Machines learn only what EC2 would tell them, except for the address of the region itself. A lab is one daemon and
// one directory, so that nothing outlives both.
package lab
