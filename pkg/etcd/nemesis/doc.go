// Package nemesis tests that etcd outlives its machines: real etcd processes under the agent's own code, on file systems
// of their own, while machines, disks, the network, names and the store fail.
//
// A schedule is one cluster's life: three machines that start from nothing, clients that write and read all the while,
// faults one after another, and then a check of everything that the clients were told. Everything in it follows from its
// seed, but for what the kernel's scheduler decides.
//
// Each machine is a network namespace on a bridge; each volume is an image file with ext4 on a loop device. The operator's
// commands are those of pkg/etcd/operate, and backups those of pkg/etcd/backup with the image's etcdutl.
//
//	what fails             how
//	kill                   SIGKILL to etcd; the agent is ended between any two of its steps
//	pause                  SIGSTOP to etcd, for up to 2.5 s
//	loss of power          ext4's shutdown without a flush of its journal, then SIGKILL: what was synced stays, the rest is gone
//	database torn          a learner's loss of power in the moment after which etcd cannot run on what is left (torn_test.go), or
//	                       that of one which has just got its vote
//	volume lost            its file is deleted, with the machine that had it; also while its successor joins
//	volume swapped         two members' volumes get each other's tags; two volumes have one tag; an older copy comes back
//	volume late            it cannot be attached for a while
//	volume full            a file takes all its space, while etcd runs or while its machine boots
//	volume broken          its device shrinks under the file system: what is not in memory fails with EIO; an operator replaces it
//	two machines           a second one comes for a seat; the first one goes, or the second
//	partition              routes without a way in the machine's namespace, in one direction or both
//	store                  away, old to all or to one machine, slow (what is written late is written), answers lost
//	names                  those of before, or two are each other's
//	clock                  that of the agent jumps by up to an hour; etcd's own is monotonic
//	restore                of any backup, while all runs, after a majority was lost, unseen by a machine
//	operator               etcd replace and etcd restore come up to three times, from two consoles, and where nothing is lost
//	members                three become five, and three again by etcd remove, while machines fail
//
// What is found: a revision that was acknowledged twice or against real time; a key that is no register (porcupine); a
// restored cluster with other data than its backup's; an answer of a cluster that was never formed, or whose successor has
// answered; a first start without a record of its own; a volume that is mounted twice; a voter whose data are gone; etcd's
// own word that its log is not what it acknowledged; a cluster that does not become whole, with the same data everywhere.
//
// TestVariants runs agents that are wrong, each in what somebody has shipped, through schedules of the faults that they fail
// at. Each must be found.
//
// Not here: three members become one, a device that loses what was synced, and clocks that etcd sees.
package nemesis
