package spec

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/awsname"
	"github.com/hardtack/packer-plugin-hardtack/pkg/base/problem/near"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/machine"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// Etcd is where the data of etcd's members are, and the overrides of the program.
type Etcd struct {
	// Storage is where the data of a member are: volume for a volume of EBS that outlives the member's machine, disk for a
	// local disk, or machine for the machine's own disk, with which the member is lost.
	Storage string `yaml:"storage"`
	// Size is the size of a member's volume in GiB. Beside the database it holds a second one while it is defragmented, and
	// a third one while a backup is tried.
	Size int `yaml:"size"`
	// IOPS is how many operations a second a member's volume carries. 3000 is what every gp3 volume has; more has a price.
	IOPS int `yaml:"iops"`
	// Throughput is how many MiB a second a member's volume carries. 125 is what every gp3 volume has; more has a price.
	Throughput int `yaml:"throughput"`
	// Key is the ARN of the KMS key that encrypts the members' volumes; empty is the account's own key for EBS. Another key
	// makes other volumes: without data.
	Key string `yaml:"key"`
	// Disks are the local disks of the storage disk, by member: paths below /dev/disk/by-id.
	Disks map[string]string `yaml:"disks"`
	// Backup is where and when backups are taken.
	Backup    Backup `yaml:"backup"`
	Component `yaml:",inline"`
}

// The bounds of a gp3 volume (EBS's user guide, "General Purpose SSD volumes"), in the narrower limits of before September
// 2025: more is no use to etcd, and not every region has it.
const (
	leastIOPS, mostIOPS             = 3000, 16000
	leastThroughput, mostThroughput = 125, 1000
	iopsOfGiB                       = 500
	iopsOfThroughput                = 4
	mostVolume                      = 1 << 14
)

// VolumeIOPS and VolumeThroughput are what every gp3 volume has, operations and MiB a second.
const (
	VolumeIOPS       = leastIOPS
	VolumeThroughput = leastThroughput
)

// defaultEtcdVolume is the size of a member's volume in GiB, for the image's quota of 4 GiB.
const defaultEtcdVolume = 20

// The copies of a database at its quota that a volume holds at once (Etcd.Size), and the GiB for the log and its snapshots.
const (
	copies   = 3
	logSpace = 1
)

// quotaFlag is etcd's limit of its database in bytes; 0 is its own default, 2 GiB.
const (
	quotaFlag    = "quota-backend-bytes"
	defaultQuota = 2 << 30
)

func (f *completer) etcd() {
	in, out := f.in.Etcd, &f.out.Cluster.Etcd
	storage, from := machine.StorageMachine, Origin{Derived, "store"}
	switch {
	case inCloud(f.out.Cluster.Store):
		storage = machine.StorageVolume
	case len(in.Disks) > 0:
		storage, from = machine.StorageDisk, Origin{Derived, "etcd.disks"}
	}
	out.Storage = orDefault(f, "etcd.storage", in.Storage, storage, from)
	size, why := f.volumeBySize()
	out.Size = orDefault(f, "etcd.size", in.Size, size, why)
	out.IOPS = orDefault(f, "etcd.iops", in.IOPS, leastIOPS, byHardtack)
	out.Throughput = orDefault(f, "etcd.throughput", in.Throughput, leastThroughput, byHardtack)
	out.Key = orDefault(f, "etcd.key", in.Key, f.out.Cluster.AWS.Key, Origin{Derived, "aws.key"})
	f.backup()
	out.Disks = map[string]string{}
	for member, disk := range in.Disks {
		out.Disks[member] = disk
		f.out.Origins[join("etcd.disks", member)] = Origin{Kind: User}
	}
	if len(out.Disks) == 0 {
		f.out.Origins["etcd.disks"] = byHardtack
	}
	f.storage(*out)
}

// storage finds what cannot work of where members' data are to be.
func (f *completer) storage(e Etcd) {
	members := f.out.etcdMembers()
	switch cloud := inCloud(f.out.Cluster.Store); {
	case e.Storage == machine.StorageVolume && !cloud:
		f.hint("etcd.storage", "name a disk of each member in etcd.disks, or write machine", "with the store %s the machines are in no cloud that has volumes", f.out.Cluster.Store)
	case e.Storage == machine.StorageDisk && cloud:
		f.hint("etcd.storage", "write volume", "a disk of an instance is gone with it, and what it is called is not known before")
	case e.Storage != machine.StorageDisk && len(e.Disks) > 0:
		f.hint("etcd.disks", "write etcd.storage: disk, or leave the disks out", "are not used: etcd.storage is %s", e.Storage)
	case e.Storage == machine.StorageDisk:
		for _, m := range members {
			if e.Disks[m] == "" {
				f.hint("etcd.disks", "ls /dev/disk/by-id on the member's machine lists the names", "member %q has none", m)
			}
		}
	}
	for _, m := range slices.Sorted(maps.Keys(e.Disks)) {
		if !slices.Contains(members, m) {
			f.hint(join("etcd.disks", m), near.DidYouMean(m, members), "%q is no member of etcd: they are %s", m, strings.Join(members, ", "))
		}
	}
	if most := max(leastIOPS, e.Size*iopsOfGiB); e.IOPS > most {
		f.errorf("etcd.iops", "%d are more than a volume of %d GiB carries, %d", e.IOPS, e.Size, most)
	}
	if e.Throughput*iopsOfThroughput > e.IOPS {
		f.errorf("etcd.throughput", "%d MiB a second are more than %d operations a second carry, %d", e.Throughput, e.IOPS, e.IOPS/iopsOfThroughput)
	}
}

// quota compares the size of the members' volumes with the largest database. It is called when the flags are known.
func (f *completer) quota() {
	e := f.out.Cluster.Etcd
	for _, p := range f.out.components {
		if p.name != "etcd" || e.Storage != machine.StorageVolume {
			continue
		}
		bytes, err := strconv.ParseInt(p.flags[quotaFlag].text(), 0, 64)
		if err != nil {
			f.warn("etcd.flags."+quotaFlag, "", "%q is no number of bytes, so that etcd.size cannot be compared with it", p.flags[quotaFlag].text())
			continue
		}
		if bytes <= 0 { // below zero is no quota at all
			bytes = defaultQuota
		}
		if need := int((copies*bytes+1<<30-1)>>30) + logSpace; e.Size < need {
			f.hint("etcd.size", "write "+strconv.Itoa(need)+" or more", "%d GiB are too small for a database of %d bytes (etcd.flags.%s): it is there three times while it is defragmented and a backup is tried",
				e.Size, bytes, quotaFlag)
		}
	}
}

// etcd checks what can be said before a document is completed.
func (v checker) etcd(e Etcd) {
	if v.source.given["etcd.storage"] && !slices.Contains(machine.Storages(), e.Storage) {
		v.hint("etcd.storage", near.DidYouMean(e.Storage, machine.Storages()), "%q is not one of %s", e.Storage, strings.Join(machine.Storages(), ", "))
	}
	v.between("etcd.size", e.Size, 1, mostVolume, "GiB")
	v.between("etcd.iops", e.IOPS, leastIOPS, mostIOPS, "operations a second")
	v.between("etcd.throughput", e.Throughput, leastThroughput, mostThroughput, "MiB a second")
	if e.Key != "" && !awsname.IsKey(e.Key) {
		v.errorf("etcd.key", "%q is not the ARN of a KMS key (arn:aws:kms:<region>:<account>:key/<id>)", e.Key)
	}
	v.backup(e.Backup)
	for _, m := range slices.Sorted(maps.Keys(e.Disks)) {
		if disk := e.Disks[m]; !machine.IsDisk(disk) {
			v.errorf(join("etcd.disks", m), "%q is not a path below /dev/disk/by-id", disk)
		}
	}
}

// between reports a number that is written and out of bounds.
func (v checker) between(field string, n, least, most int, unit string) {
	if v.source.given[field] && (n < least || n > most) {
		v.errorf(field, "%d is not between %d and %d %s", n, least, most, unit)
	}
}

// etcdMembers are the names of all members: without names in the document, the only one's.
func (c *Complete) etcdMembers() []string {
	var members []string
	for _, g := range c.Groups {
		if g.Member != "" {
			members = append(members, g.Member)
		}
	}
	return members
}

// Volume reports whether the group's machine has its member's data on a volume of EBS.
func (c *Complete) Volume(g Group) bool {
	return g.Member != "" && c.Cluster.Etcd.Storage == machine.StorageVolume
}

// etcdLines are the lines of etcd's role file that are the agent's. In a cloud a machine's tag says which of several
// members it is.
func (c *Complete) etcdLines(g Group) map[string]string {
	lines := map[string]string{}
	if g.Member != "" && !inCloud(c.Cluster.Store) {
		lines[memberVariable] = g.Member
	}
	if e := c.Cluster.Etcd; e.Storage != machine.StorageMachine && g.Roles.Has(role.Etcd) {
		lines[storageVariable] = e.Storage
		if disk := e.Disks[g.Member]; disk != "" {
			lines[diskVariable] = disk
		}
	}
	if to := c.backupTo(); to != "" {
		lines[backupVariable] = to
		if every := c.Cluster.Etcd.Backup.Every; every != machine.BackupMinutes {
			lines[backupEveryVariable] = strconv.Itoa(every)
		}
	}
	return lines
}
