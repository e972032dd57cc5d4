package cluster

import (
	"errors"
	"fmt"
	"strings"

	"github.com/hardtack/packer-plugin-hardtack/pkg/cluster/cloudformation"
	"github.com/hardtack/packer-plugin-hardtack/pkg/cluster/rollout"
)

// ErrNoGroups means that the account has no AutoScaling group of the cluster.
var ErrNoGroups = errors.New("there are none")

// NoStackError means that the stack whose machines are to be changed does not exist. It unwraps to
// cloudformation.ErrNoStack.
type NoStackError struct{ Stack string }

func (e *NoStackError) Error() string { return "there is no stack " + e.Stack }

func (e *NoStackError) Unwrap() error { return cloudformation.ErrNoStack }

// BusyError means that an operation on the stack is under way.
type BusyError struct{ Stack, Status string }

func (e *BusyError) Error() string {
	return fmt.Sprintf("stack %s is %s: wait for its end", e.Stack, e.Status)
}

// NoImageError means that the channel has no image.
type NoImageError struct{ Channel string }

func (e *NoImageError) Error() string {
	return fmt.Sprintf("reading the image of channel %s: there is none", e.Channel)
}

// TooEarlyError refuses to start machines before their zone and the DNS function exist.
type TooEarlyError struct{ Stack string }

func (e *TooEarlyError) Error() string {
	return fmt.Sprintf("machines need their zone, and the function that keeps its records: there is no stack %s yet", e.Stack)
}

// EndsMachinesError refuses to end all machines of a cluster without permission.
type EndsMachinesError struct{ Cluster string }

func (e *EndsMachinesError) Error() string {
	return fmt.Sprintf("applying ends every machine of %s, and etcd's data are lost where they are on no volume", e.Cluster)
}

// RefreshingError refuses to change groups that AutoScaling is refreshing. AutoScaling would refuse that too, but only
// in the middle of the operation.
type RefreshingError struct{ Groups []rollout.Group }

func (e *RefreshingError) Error() string {
	var lines []string
	for _, g := range e.Groups {
		lines = append(lines, fmt.Sprintf("changing %s: AutoScaling is refreshing it, %s, %d %%", g.Name, g.Refresh.Status, g.Refresh.Percent))
	}
	return strings.Join(lines, "\n")
}

// TooLargeError means that the template is too large for a request and has to be deployed from S3.
type TooLargeError struct {
	Stack, Region string
	// Bytes is the size of the template, Most the largest that a request takes.
	Bytes, Most int
}

func (e *TooLargeError) Error() string {
	return fmt.Sprintf("the template is %d bytes, and a request takes %d", e.Bytes, e.Most)
}

// UnpreparedError means that the stack was made but its zone could not be prepared. Calling Apply again prepares it.
type UnpreparedError struct{ Err error }

func (e *UnpreparedError) Error() string { return e.Err.Error() + "\nthe stack is made" }

func (e *UnpreparedError) Unwrap() error { return e.Err }

// NotEndedError means that machines have not ended in time. Calling Delete again continues to wait.
type NotEndedError struct {
	Cluster  string
	Machines []string
}

func (e *NotEndedError) Error() string {
	return fmt.Sprintf("waiting for the machines of %s to end: %s are still there (does the function complete their hooks?)", e.Cluster, strings.Join(e.Machines, ", "))
}

// RewrittenError means that removed records came back every time.
type RewrittenError struct{ Cluster, Zone string }

func (e *RewrittenError) Error() string {
	return fmt.Sprintf("removing the records of %s from zone %s: another client adds them again after each removal; is the function still deployed?", e.Cluster, e.Zone)
}

// KeptKeyError means that the alias of the key is that of an earlier stack, whose key was kept.
type KeptKeyError struct{ Alias string }

func (e *KeptKeyError) Error() string {
	return fmt.Sprintf("%s is the key of an earlier stack, which stays when its stack is deleted: to use it again, write aws.secretsKey: %s", e.Alias, e.Alias)
}

// KeyNotAppliedError refuses to encrypt the secrets under a key that the machines of a stack may not use.
type KeyNotAppliedError struct{ Stack, Key string }

func (e *KeyNotAppliedError) Error() string {
	return fmt.Sprintf("the machines of stack %s may not use %s yet", e.Stack, e.Key)
}

// KeyChangeError refuses to take the permission for the key that the secrets are under from the machines.
type KeyChangeError struct{ Have, Want string }

func (e *KeyChangeError) Error() string {
	return fmt.Sprintf("the secrets are under %s, and the document says %s: machines may use one customer key at a time", e.Have, e.Want)
}

// VolumesError means that the volumes of etcd's members, or the machines that hold them, could not become what the document
// and the parameters say. Nothing was changed.
type VolumesError struct {
	Cluster string
	// Problems name the member each.
	Problems []string
}

func (e *VolumesError) Error() string {
	return "placing etcd's members of " + e.Cluster + ":\n  " + strings.Join(e.Problems, "\n  ")
}

// BucketError refuses to make the bucket of etcd's backups, since an earlier stack of the cluster has left it. Nothing was changed.
type BucketError struct {
	Cluster string
	Bucket  string
	// Facts say what is in it.
	Facts string
}

func (e *BucketError) Error() string {
	return fmt.Sprintf("making the bucket of etcd's backups of %s: %s is there, of an earlier stack, and %s: name it in the document (etcd.backup.to: s3://%[2]s), or empty and delete it", e.Cluster, e.Bucket, e.Facts)
}

// UnreadableError refuses to end groups that could not be read, or to give their members of etcd to others. Nothing was changed.
type UnreadableError struct {
	Cluster string
	Groups  []rollout.Unread
}

func (e *UnreadableError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "changing groups of %s: the document ends a group, or moves its member of etcd, and whether data would be lost is not known, since it could not be read:", e.Cluster)
	for _, u := range e.Groups {
		b.WriteString("\n  " + u.Why)
	}
	return b.String()
}

// VotersError refuses to end the groups of members of etcd that are still its voters. Nothing was changed.
type VotersError struct {
	Cluster string
	Members []string
	// Unread says why the members' reports could not be read; empty if they were.
	Unread string
}

func (e *VotersError) Error() string {
	if e.Unread != "" {
		return "ending groups of etcd's members of " + e.Cluster + ": whether they are its voters cannot be read: " + e.Unread
	}
	return fmt.Sprintf("ending groups of etcd's members of %s: %s are still its voters, and without their machines the others would wait for them", e.Cluster, strings.Join(e.Members, " and "))
}
