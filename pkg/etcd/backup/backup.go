// Package backup keeps snapshots of a cluster's etcd in a place of their own: a directory, or a bucket of S3 or of what
// speaks like it.
//
// Its rule: a snapshot is a backup only once its description is beside it, and the description is written last, after the
// snapshot was restored for a trial and has arrived whole. Nothing is replaced and nothing deleted: how long a backup is
// kept is the place's to decide.
package backup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/hardtack/packer-plugin-hardtack/pkg/etcd"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/machine"
)

// Errors of a Place.
var (
	// ErrNotFound: the place has no such object.
	ErrNotFound = errors.New("there is no such object")
	// ErrExists: the place has an object of that name, which stays as it is.
	ErrExists = errors.New("there is an object of that name already")
	// ErrForbidden: the place does not let this caller do that.
	ErrForbidden = errors.New("access denied")
	// ErrNoBucket: the place is a bucket that does not exist.
	ErrNoBucket = errors.New("there is no such bucket")
)

// Object is a backup: the content of the description beside a snapshot.
type Object struct {
	// Name is the snapshot's name in its place: <cluster>/<epoch>/<UTC time to the second>-<revision>.db.
	Name  string `json:"name"`
	Epoch int    `json:"epoch"`
	// Member is whose data it is.
	Member   string    `json:"member"`
	Taken    time.Time `json:"taken"`
	Revision int64     `json:"revision"`
	// Keys is how many revisions of keys the database has, as etcdutl counts them.
	Keys int64 `json:"keys"`
	// Size and SHA256 are those of the whole snapshot, in bytes and in hexadecimal digits.
	Size      int64   `json:"size"`
	SHA256    string  `json:"sha256"`
	ClusterID etcd.ID `json:"cluster_id"`
	// Version is the version of the etcd that the snapshot is from.
	Version string `json:"version"`
}

// Restore is what an epoch's begin says about the backup that it starts from.
func (o Object) Restore() etcd.Restore {
	return etcd.Restore{Object: o.Name, SHA256: o.SHA256, Revision: o.Revision}
}

// Backup is what a member's status says about it. Every backup was restored for a trial when it was taken.
func (o Object) Backup() *etcd.Backup {
	return &etcd.Backup{Restore: o.Restore(), At: o.Taken, Verified: o.Taken}
}

// Place is where the backups of one cluster are. It is safe for concurrent use, by several machines too.
type Place interface {
	// List returns all backups of the cluster, the newest first, of every epoch. A snapshot without a description is none.
	List(ctx context.Context) ([]Object, error)
	// Newest returns the newest backup of an epoch, or of all for 0; nil if there is none. It costs less than List.
	Newest(ctx context.Context, epoch int) (*Object, error)
	// Open returns the content of the snapshot with that name; the caller closes it. Its error matches ErrNotFound if there is
	// none. What is read is to be compared with the SHA-256.
	Open(ctx context.Context, name string) (io.ReadCloser, error)
	// Put stores a snapshot from a file, and then its description. Its error matches ErrExists if there is one of that name.
	Put(ctx context.Context, o Object, file string) error
	// String returns the location.
	String() string
}

// Options are what a place needs beside its location.
type Options struct {
	// Cluster is whose backups they are.
	Cluster string
	// Load returns the region and the credentials, for a bucket. It is called at the first use, and again until it succeeds.
	Load func(ctx context.Context) (aws.Config, error)
	// Account returns the number of the AWS account, for a location that has machine.BackupAccount in it.
	Account func(ctx context.Context) (string, error)
	// HTTP sends the requests to a bucket; nil is a client whose time is enough for snapshots of any size.
	HTTP aws.HTTPClient
}

// Open returns the place at a location, machine.ParseBackups's. It makes no request.
func Open(location string, o Options) (Place, error) {
	at, err := machine.ParseBackups(location)
	if err != nil {
		return nil, err
	}
	if at.Kind == machine.BackupsDir {
		return dir{root: at.Path, cluster: o.Cluster}, nil
	}
	if o.Load == nil {
		return nil, fmt.Errorf("backups in %s: nothing says with which credentials", at)
	}
	return newBucket(at, o), nil
}
