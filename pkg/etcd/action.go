package etcd

import (
	"fmt"
	"strings"

	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// Do is the one step that a machine takes. A step whose creation of a record is refused has been taken by somebody else:
// look again.
type Do uint8

// The steps.
const (
	// Wait: nothing; look again.
	Wait Do = iota
	// Stop: as Wait, but nothing changes until a person acts.
	Stop
	// Attach: attach the claimed volume to this machine. Never detach one.
	Attach
	// Make: create the volume's "made" with this member and a new random UUID.
	Make
	// Format: mkfs.ext4 with the UUID of "made".
	Format
	// Mount: check and repair the file system, grow it, mount it by its UUID at Dir, read the marker.
	Mount
	// Discard: stop etcd if it runs, move DataDir to TrashDir/<marker's epoch>, sync both directories.
	Discard
	// Fetch: get the backup that the epoch starts from, compare its SHA-256, restore it to a new directory with a bumped
	// revision, the epoch's token and members, sync it, and rename it to RestoreDir.
	Fetch
	// Claim: draw a new Attempt, keep it, create this member's "started" with it.
	Claim
	// First: create "used", write the marker (MemberID and ClusterID computed), move RestoreDir to DataDir if the epoch
	// restores, forget the Attempt, write the environment, start etcd. In this order, each on stable storage. Then look
	// again as soon as there is a log, which is what the row S1 waits for.
	First
	// Abandon: create the epoch's outcome as abandoned.
	Abandon
	// NextEpoch: create the begin of the next epoch: Begin.Next with a new token.
	NextEpoch
	// Run: write the environment and start etcd.
	Run
	// Rewrite: write the environment and leave etcd as it is.
	Rewrite
	// Halt: stop etcd.
	Halt
	// Form: create the epoch's outcome as formed, with the IDs of the List.
	Form
	// Reopen: write the environment and restart etcd.
	Reopen
	// Advertise: tell the cluster at which address this member now is.
	Advertise
	// Join: take the step of DecideJoin.
	Join
	// Report: etcd runs as it should; write the status when it is due.
	Report
)

var doNames = [...]string{"wait", "stop", "attach", "make", "format", "mount", "discard", "fetch", "claim", "first", "abandon", "next epoch", "run", "rewrite", "halt", "form", "reopen", "advertise", "join", "report"}

func (d Do) String() string { return doNames[d] }

// Clients is who reaches a member.
type Clients uint8

// The clients.
const (
	// Closed: this machine's agent only.
	Closed Clients = iota
	// Open: as the role file says.
	Open
)

// Start is what a member's environment lets etcd do.
type Start uint8

// The starts. The zero value is the careful one.
const (
	// Sealed: start with the log that is there, and fail without one.
	Sealed Start = iota
	// New: begin a cluster with the other members of the epoch's first start.
	New
	// Joining: begin with an empty log under the ID that the cluster has for this member.
	Joining
)

// ClosedAddress is where a closed member listens for clients, with the certificate of 127.0.0.1. It is another address of
// the machine's loopback than that of the API server beside it, so that a closed member has no clients.
const ClosedAddress = "127.0.0.2"

// ClosedURL is the client URL of a closed member.
func ClosedURL() string { return fmt.Sprintf("https://%s:%d", ClosedAddress, role.EtcdClientPort) }

// Action is what to do next.
type Action struct {
	Row Row
	Do  Do
	// Clients and Start are for the environment; they have a meaning with First, Run, Rewrite and Reopen.
	Clients Clients
	Start   Start
}

// Environment returns the lines of the file that etcd's service reads last, for an action that writes it.
func (a Action) Environment(f Facts) []string { return environment(f, a.Start, a.Clients) }

func environment(f Facts, start Start, clients Clients) []string {
	state, members := "existing", []Peer{{f.Member, f.PeerURL}}
	switch start {
	case New:
		state, members = "new", f.Store.Begin.Members
	case Joining:
		for _, m := range f.List.Members {
			if !f.mine(m) {
				members = append(members, Peer{m.Name, m.PeerURL})
			}
		}
	case Sealed:
	}
	peers := make([]string, 0, len(members))
	for _, m := range members {
		peers = append(peers, m.Name+"="+m.URL)
	}
	lines := []string{
		"ETCD_NAME=" + f.Member,
		"ETCD_INITIAL_CLUSTER=" + strings.Join(peers, ","),
		"ETCD_INITIAL_CLUSTER_STATE=" + state,
	}
	if start != Sealed {
		lines = append(lines, "ETCD_INITIAL_CLUSTER_TOKEN="+f.Store.Begin.Token)
	}
	if clients == Closed {
		lines = append(lines, "ETCD_LISTEN_CLIENT_URLS="+ClosedURL())
	}
	return lines
}

// mine reports whether an entry of the list is this member, by its URL or by its name.
func (f *Facts) mine(m Member) bool { return m.PeerURL == f.PeerURL || m.Name == f.Member }

// Explanation is an action for people. A reason is a word of pkg/node/reason.
type Explanation struct {
	// Reason is empty for an action that is not waited for.
	Reason string
	Cause  string
	Next   string
}

// Explain says why the machine does what it does.
func (a Action) Explain(f Facts) Explanation {
	r := rows[a.Row]
	return Explanation{Reason: r.reason, Cause: cause(a.Row, f), Next: strings.ReplaceAll(r.next, "MEMBER", f.Member)}
}

// cause says what was seen, with its names.
func cause(row Row, f Facts) string {
	text := rows[row].when
	switch row {
	case V2Many:
		var ids []string
		for _, c := range f.Volumes.Claims {
			ids = append(ids, c.ID)
		}
		return fmt.Sprintf("volumes %s all claim member %s", strings.Join(ids, ", "), f.Member)
	case V4Held:
		c := f.Volumes.Claims[0]
		if c.Holder == "" {
			return fmt.Sprintf("volume %s is %s", c.ID, c.State)
		}
		return fmt.Sprintf("volume %s is held by %s, which is %s", c.ID, c.Holder, c.State)
	case V5Device, F0Unread, F3Lost:
		return fmt.Sprintf("volume %s: %s", f.volume(), text)
	case F5Foreign:
		return fmt.Sprintf("volume %s: %s", f.volume(), foreign(f))
	case E3Older:
		return fmt.Sprintf("the data are of epoch %d, the store's newest is %d", f.Disk.Marker.Epoch, f.Store.Epoch)
	case E6Other:
		return fmt.Sprintf("the data are of cluster %s, epoch %d is cluster %s", f.Disk.Marker.ClusterID, f.Store.Epoch, f.Store.Outcome.Formed.ClusterID)
	case N0Address:
		p, _ := f.Store.Begin.peer(f.Member)
		return fmt.Sprintf("member %s offers itself at %s, epoch %d expects %s", f.Member, f.PeerURL, f.Store.Epoch, p.URL)
	default:
		return text
	}
}

// foreign says what of a volume is not this member's.
func foreign(f Facts) string {
	d, m := f.Disk, f.Disk.Marker
	switch made := f.Store.Made; {
	case made != nil && made.Member != f.Member:
		return "it was made for member " + made.Member
	case m != nil && (m.Cluster != f.Cluster || m.Member != f.Member || m.Volume != f.volume()):
		return fmt.Sprintf("its marker is of member %s of cluster %s on volume %s", m.Member, m.Cluster, m.Volume)
	case d.Damaged:
		return "fsck could not repair its file system"
	case made == nil:
		return "it is not blank, and no record says that a machine of this cluster made its file system"
	case d.On == OnExt4:
		return fmt.Sprintf("its file system is %s, the record says %s", d.UUID, made.UUID)
	default:
		return "it has something that is not a file system of ours"
	}
}

// volume is the ID of the volume that is mounted, else of the one that claims to be the member's; "" for StorageMachine.
func (f *Facts) volume() string {
	if f.Disk.Mounted && f.Disk.Volume != "" {
		return f.Disk.Volume
	}
	if len(f.Volumes.Claims) == 0 {
		return ""
	}
	return f.Volumes.Claims[0].ID
}
