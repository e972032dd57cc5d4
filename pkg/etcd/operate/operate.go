// Package operate is what a person does with a cluster's etcd: look at all its members, and give one a new volume.
//
// Its rule: it acts through the cluster's store and the cloud alone, never through etcd, so that it works from outside the
// VPC and when nothing answers any more. What members report is old by up to a minute: it is shown and it can be a reason
// to refuse; whatever changes a membership is decided by the members' machines, by pkg/etcd.
package operate

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/clock"
	"github.com/hardtack/packer-plugin-hardtack/pkg/etcd"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki"
)

// Records are the objects of the cluster's store.
type Records interface {
	// Get returns an object. Its error matches pki.ErrNotFound if there is none.
	Get(ctx context.Context, object string) ([]byte, error)
	// Create creates an object. Its error matches pki.ErrExists if there is one.
	Create(ctx context.Context, object string, content []byte) error
	String() string
}

// Cloud is where the members' machines and volumes are. What it returns may be some seconds old.
type Cloud interface {
	// Volumes returns all volumes with the tags of the cluster and a member, in every zone, without those being deleted.
	Volumes(ctx context.Context) ([]Volume, error)
	// Machines returns the machines with the tags of the cluster and a member that are not terminated.
	Machines(ctx context.Context) ([]Machine, error)
	// Make makes a volume and returns its id. EC2 goes on creating it after the answer.
	Make(ctx context.Context, v NewVolume) (string, error)
	// Release takes the tag of the member off a volume: no machine finds it any more. It stays attached to one that has it.
	Release(ctx context.Context, volume string) error
}

// Volume is a volume with the tag of a member.
type Volume struct {
	ID     string `json:"id"`
	Member string `json:"member"`
	Zone   string `json:"zone"`
	// State is EC2's word: creating, available, in-use or error.
	State string `json:"state"`
	// Holder is the machine that it is attached to, being attached to or detached from; HolderState is that machine's state
	// in EC2's word: terminated if EC2 knows it no more. Both are empty if there is none.
	Holder      string `json:"holder,omitempty"`
	HolderState string `json:"holder_state,omitempty"`
}

// terminated is EC2's word for a machine that has ended: nothing runs on it, and its volumes become free.
const terminated = "terminated"

// Held reports whether a machine that has not ended has the volume: it may be writing to it.
func (v Volume) Held() bool { return v.Holder != "" && v.HolderState != terminated }

// Machine is a machine with the tag of a member.
type Machine struct {
	ID     string `json:"id"`
	Member string `json:"member"`
	Zone   string `json:"zone"`
	State  string `json:"state"`
}

// Cluster is the etcd of a cluster as its operator acts on it.
type Cluster struct {
	Name string
	// Members are the names of all members, as the cluster's document has them, and Storage is where their data are: a value
	// of machine.Etcd's.
	Members []string
	Storage string
	// Peers are the same members with the URLs at which their machines offer them to each other.
	Peers   []etcd.Peer
	Records Records
	// Cloud is nil where the machines are in none.
	Cloud Cloud
	// Backups is nil where the cluster has no place for them.
	Backups Backups
	Clock   clock.Clock
}

// epoch is what the store says about an epoch.
type epoch struct {
	number  int // 0 if none has begun
	begin   *etcd.Begin
	outcome *etcd.Outcome
}

// formed is the cluster that the epoch was formed as; nil if it was not.
func (e epoch) formed() *etcd.Formed {
	if e.outcome == nil {
		return nil
	}
	return e.outcome.Formed
}

// epochs reads all epochs, from the first.
func (c *Cluster) epochs(ctx context.Context) (all []epoch, err error) {
	for n := 1; ; n++ {
		e := epoch{number: n}
		if e.begin, err = read[etcd.Begin](ctx, c.Records, etcd.BeginObject(n)); err != nil || e.begin == nil {
			return all, err
		}
		if e.outcome, err = read[etcd.Outcome](ctx, c.Records, etcd.OutcomeObject(n)); err != nil {
			return all, err
		}
		all = append(all, e)
	}
}

// newest returns the last of all epochs; without any, the zero epoch.
func newest(all []epoch) epoch {
	if len(all) == 0 {
		return epoch{}
	}
	return all[len(all)-1]
}

// read reads a record; it is nil if there is none.
func read[T etcd.Record](ctx context.Context, r Records, object string) (*T, error) {
	data, err := r.Get(ctx, object)
	if errors.Is(err, pki.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading etcd's records: %w", err)
	}
	record, err := etcd.Parse[T](data)
	if err != nil {
		return nil, fmt.Errorf("reading etcd's records: %s of %s: %w", object, r, err)
	}
	return &record, nil
}

// fresh is how old a member's report may be: it is written every minute.
const fresh = 3 * time.Minute
