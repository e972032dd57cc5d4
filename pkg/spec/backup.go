package spec

import (
	"strings"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/awsname"
	"github.com/hardtack/packer-plugin-hardtack/pkg/base/problem/near"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/machine"
)

// Backup is where the backups of etcd are stored, and when they are taken.
type Backup struct {
	// To is where the leader's machine stores backups: stack for a bucket that the cluster's stack makes, s3://BUCKET/PREFIX for
	// another one (with ?endpoint=URL and region=REGION for a service that speaks like S3), dir:/PATH for a directory that is
	// mounted on every member's machine, or none: then the loss of a majority of the members' data is final.
	To string `yaml:"to"`
	// Every is how many minutes lie between two backups.
	Every int `yaml:"every"`
	// Keep is how many days the stack's bucket keeps a backup. Other places delete by their own rules, or never.
	Keep int `yaml:"keep"`
	// Key is the ARN of the KMS key that the bucket encrypts with; empty is S3's own key.
	Key string `yaml:"key"`
}

// The values of Backup.To beside locations.
const (
	BackupStack = machine.BackupsStack
	BackupNone  = "none"
)

// The days that the stack's bucket keeps a backup.
const (
	defaultKeep = 14
	mostKeep    = 3650
)

func (f *completer) backup() {
	in, out := f.in.Etcd.Backup, &f.out.Cluster.Etcd.Backup
	to := BackupNone
	if inCloud(f.out.Cluster.Store) {
		to = BackupStack
	}
	out.To = orDefault(f, "etcd.backup.to", in.To, to, Origin{Derived, "store"})
	out.Every = orDefault(f, "etcd.backup.every", in.Every, machine.BackupMinutes, byHardtack)
	out.Keep = orDefault(f, "etcd.backup.keep", in.Keep, defaultKeep, byHardtack)
	key := Origin{Derived, "aws.key"}
	if out.To != BackupStack {
		out.Key = orDefault(f, "etcd.backup.key", in.Key, "", byHardtack)
	} else {
		out.Key = orDefault(f, "etcd.backup.key", in.Key, f.out.Cluster.AWS.Key, key)
	}
	written := func(field string) bool { return f.out.Origins[field].Kind == User }
	switch at, err := machine.ParseBackups(out.To); {
	case out.To == BackupStack && !inCloud(f.out.Cluster.Store):
		f.hint("etcd.backup.to", "write s3://BUCKET/PREFIX or dir:/PATH", "with the store %s there is no stack that makes a bucket", f.out.Cluster.Store)
	case out.To == BackupStack || out.To == BackupNone || err != nil: // the document's own check has said so
	case at.Kind == machine.BackupsS3 && at.Bucket != at.In("", "").Bucket && !inCloud(f.out.Cluster.Store):
		f.hint("etcd.backup.to", "write the bucket's whole name", "names a bucket after an AWS account, and with the store %s the machines are in none", f.out.Cluster.Store)
	case at.Kind == machine.BackupsS3 && at.Region == "" && !inCloud(f.out.Cluster.Store):
		f.hint("etcd.backup.to", "add ?region=REGION", "says not in which region the bucket is, and with the store %s the machines are in none", f.out.Cluster.Store)
	case at.Kind == machine.BackupsDir && inCloud(f.out.Cluster.Store):
		f.hint("etcd.backup.to", "write stack or s3://BUCKET/PREFIX", "a directory of a machine in AWS is gone with it")
	}
	if out.To == BackupStack {
		return
	}
	if written("etcd.backup.keep") {
		f.hint("etcd.backup.keep", "leave it out: a place of your own has its own rules", "is for the stack's bucket, and etcd.backup.to is %s", out.To)
	}
	if written("etcd.backup.key") && (!strings.HasPrefix(out.To, machine.BackupsS3+":") || !inCloud(f.out.Cluster.Store)) {
		f.hint("etcd.backup.key", "leave it out", "is for a bucket in AWS that machines in AWS use, and etcd.backup.to is %s", out.To)
	}
}

// backup checks what can be said before a document is completed.
func (v checker) backup(b Backup) {
	if to := b.To; v.source.given["etcd.backup.to"] && to != BackupStack && to != BackupNone {
		if _, err := machine.ParseBackups(to); err != nil {
			v.hint("etcd.backup.to", near.DidYouMean(to, []string{BackupStack, BackupNone}), "neither %s nor %s nor a place: %v", BackupStack, BackupNone, err)
		}
	}
	v.between("etcd.backup.every", b.Every, machine.LeastBackupMinutes, machine.MostBackupMinutes, "minutes")
	v.between("etcd.backup.keep", b.Keep, 1, mostKeep, "days")
	if b.Key != "" && !awsname.IsKey(b.Key) {
		v.errorf("etcd.backup.key", "%q is not the ARN of a KMS key (arn:aws:kms:<region>:<account>:key/<id>)", b.Key)
	}
}

// Backups is where machines store backups of etcd, as machine.ParseBackups takes it; empty is nowhere.
func (c *Complete) Backups() string {
	switch to := c.Cluster.Etcd.Backup.To; to {
	case BackupNone:
		return ""
	case BackupStack:
		return machine.StackBackups(c.Cluster.Name).String()
	default:
		return to
	}
}

// backupTo is what machines are told: the stack's bucket they find by its word.
func (c *Complete) backupTo() string {
	if to := c.Cluster.Etcd.Backup.To; to != BackupNone {
		return to
	}
	return ""
}
