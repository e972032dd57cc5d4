package member

import (
	"errors"
	"net"
	"net/url"
	"strconv"

	"github.com/hardtack/packer-plugin-hardtack/pkg/etcd"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// Errors of a Peer that mean "later".
var (
	// ErrUnhealthy: a change of membership is refused until enough members have been connected for 5 seconds.
	ErrUnhealthy = errors.New("the etcd cluster is not healthy enough for a change of its members")
	// ErrNotReady: a learner does not have everything yet.
	ErrNotReady = errors.New("the learner is not in sync with the leader")
	// ErrNoSpace: the database is at its quota, and takes no writes until somebody ends the alarm.
	ErrNoSpace = errors.New("the database is at its quota")
	// ErrHeld: another one holds the lock.
	ErrHeld = errors.New("the lock is held")
)

// Lease is a lease of etcd's, which a lock ends with. Zero is none.
type Lease uint64

// Status is what a member says about itself.
type Status struct {
	ID        etcd.ID
	ClusterID etcd.ID
	// Leader is zero if it knows none.
	Leader  etcd.ID
	Learner bool
	Version string
	// Index is the last entry of its log, Applied the last that it has applied.
	Index, Applied uint64
	Revision       int64
	// Size is the size of the database's file in bytes, InUse what of it is not free.
	Size, InUse int64
	// Quota is the size at which it takes no more writes; 0 if it does not say.
	Quota int64
	// Alarms are the names of its alarms: NOSPACE, CORRUPT.
	Alarms []string
}

// clientURL is where clients reach the member with a peer URL: the same host, by another port.
func clientURL(peer string) string {
	u, err := url.Parse(peer)
	if err != nil {
		return ""
	}
	u.Host = net.JoinHostPort(u.Hostname(), strconv.Itoa(role.EtcdClientPort))
	return u.String()
}
