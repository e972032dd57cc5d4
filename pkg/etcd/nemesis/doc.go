// Package nemesis tests that etcd outlives its machines: real etcd processes under the agent's own code, on file systems
// of their own, while machines, disks, the network, names and the store fail.
//
// A schedule is one cluster's life: three machines that start from nothing, clients that write and read all the while,
// faults one after another, and then a check of everything that the clients were told. Everything in it follows from its
// seed, but for what the kernel's scheduler decides.
//
// Each machine is a network namespace on a bridge; each volume is an image file with ext4 on a loop device. Losing
// power is ext4's shutdown without a flush of its journal: what was synced stays, what was not is gone.
package nemesis
