package etcd

import "time"

// Storage is where a member's data are.
type Storage uint8

// The storages.
const (
	// StorageVolume is an EBS volume with the tags of cluster and member, attached by the machine.
	StorageVolume Storage = iota
	// StorageDisk is a disk of the machine, named in the document by its link below /dev/disk/by-id: no cloud.
	StorageDisk
	// StorageMachine is the machine's own root file system: the data end with the machine.
	StorageMachine
)

// Facts are what a member's machine sees at one moment. A fact that could not be found out is its zero value, unless said
// otherwise: that is always the careful reading.
type Facts struct {
	Cluster string
	Member  string
	// PeerURL is the URL at which the machine's configuration offers the member to the others.
	PeerURL string
	// Others: the machine's configuration names other members.
	Others bool
	// Instance is the ID of the machine, as volumes name their holder.
	Instance string
	Storage  Storage
	Volumes  Volumes
	Disk     Disk
	Store    Store
	// Attempt is the Attempt of the record "started" that this process created, or tried to create without an answer, in
	// the current epoch. It is forgotten before etcd is started: one attempt starts once.
	Attempt string
	Etcd    Process
	// Broken is the ID of the member whose etcd this process has halted since it cannot run on its data; 0 if there is none. It
	// is forgotten when etcd is started.
	Broken ID
	// List is the cluster's list of members by a linearizable read: of this member if it runs, or of any other of the
	// current epoch; nil if none answered. A list that is not linearizable is not to be given.
	List *List
}

// Volumes are the volumes with the tags of this cluster and member in this machine's zone, without those being deleted.
// For StorageDisk it is the one disk of the document, held by this machine.
type Volumes struct {
	// Known is false if the cloud did not answer.
	Known  bool
	Claims []Volume
}

// Volume is a volume that claims to be this member's.
type Volume struct {
	ID string
	// Holder is the machine that it is attached to, being attached to or detached from; "" if there is none.
	Holder string
	// State is the holder's state, or the volume's if it has no holder, in the cloud's own word, for messages.
	State string
	// Free: it can be attached now.
	Free bool
	// Device is the path of the device on this machine by the volume's serial number; "" if there is none yet.
	Device string
}

// On is what is on a device.
type On uint8

// The contents of a device.
const (
	OnUnknown On = iota // not read, or reading failed
	OnBlank             // nothing is recognized, and the first MiB is zero
	OnScraps            // nothing is recognized, but it is not blank: a file system half made, or destroyed
	OnExt4              // an ext4 file system
	OnOther             // anything else
)

// Disk is what is on the device, or for StorageMachine in the directory: then Mounted is true and the first fields are
// empty.
type Disk struct {
	On On
	// UUID is the file system's.
	UUID string
	// Damaged: fsck could not repair it (exit status 4 or more).
	Damaged bool
	Mounted bool
	// Volume is the ID of the volume that is mounted, by its device's serial number; "" if none is, and for StorageMachine.
	Volume string
	// Marker is nil if there is none; MarkerBroken if there is one that cannot be parsed.
	Marker       *Marker
	MarkerBroken bool
	// WAL: etcd's write-ahead log is there.
	WAL bool
	// Restored: the backup of the current epoch is in RestoreDir, complete and on stable storage.
	Restored bool
}

// Store is what the cluster's store says.
type Store struct {
	// Answers is false if any of the reads got no answer; the other fields are then not used.
	Answers bool
	// Epoch is the highest n with a begin; 0 if there is none.
	Epoch   int
	Begin   *Begin
	Started *Started // this member's in this epoch
	Outcome *Outcome
	// Made and Used are those of the volume that is mounted, else of the one that claims to be this member's; nil for
	// StorageMachine.
	Made *Made
	Used *Used
	// Removed is that of the member's place; nil if what is there was not removed.
	Removed *Removed
}

// Process is etcd on this machine.
type Process struct {
	// Running: the service is started, even if it fails and is tried again.
	Running bool
	// Failing: it ended by itself and waits for its next start.
	Failing bool
	// Panics is how often in a row it has ended by itself with a panic and without an answer in between, as far as this process
	// has seen it. Any other end, an answer, and a start by this process begin anew: what lacks space, a certificate or time to
	// start does not count.
	Panics int
	// Clients and Start are those of the environment that was written last.
	Clients Clients
	Start   Start
	// Reads: a linearizable read by this machine of its own member works, which takes a quorum; ReadsFor is for how long
	// it has worked without a pause.
	Reads    bool
	ReadsFor time.Duration
}

// List is a cluster's members as one of them tells.
type List struct {
	ClusterID ID
	Members   []Member
}

// Member is an entry of a List.
type Member struct {
	ID ID
	// Name is empty for a member that was added and never started.
	Name    string
	PeerURL string
	Learner bool
	// Started: it has client URLs, which it publishes itself when it runs for the first time.
	Started bool
}

func (l *List) byID(id ID) *Member {
	if l == nil || id == 0 {
		return nil
	}
	for i := range l.Members {
		if l.Members[i].ID == id {
			return &l.Members[i]
		}
	}
	return nil
}

// started reports whether the member of that name has run.
func (l *List) started(name string) bool {
	for i := range l.Members {
		if l.Members[i].Name == name && l.Members[i].Started {
			return true
		}
	}
	return false
}

// Quorum is how many of n voters must agree.
func Quorum(n int) int { return n/2 + 1 }
