package operate

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/etcd"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/machine"
)

// NewVolume is a volume to make: encrypted, of type gp3, with the tags of the cluster and the member.
type NewVolume struct {
	Member string `json:"member"`
	Zone   string `json:"zone"`
	// Size is in GiB, Throughput in MiB/s. Key is the ARN of the KMS key; empty is the account's own.
	Size       int    `json:"size"`
	IOPS       int    `json:"iops"`
	Throughput int    `json:"throughput"`
	Key        string `json:"key,omitempty"`
	// Token makes repeated calls with one token make one volume.
	Token string `json:"-"`
}

// Replaced is what Replace did.
type Replaced struct {
	NewVolume
	// Volume is the new volume's id; empty if none was made.
	Volume string `json:"volume,omitempty"`
	// Made is false where a volume that never had data is there already, and where nothing was to change.
	Made bool `json:"made"`
	// Next says what happens now.
	Next string `json:"next"`
}

// Replace makes a new volume for a member that has lost its own. It deletes nothing and detaches nothing: while an old
// volume is there, the error says who has it and what to do. An empty Zone of v is that of the member's machine. The member
// joins by itself, if the others are a quorum.
func (c *Cluster) Replace(ctx context.Context, v NewVolume, dryRun bool) (*Replaced, error) {
	if err := c.replaceable(v.Member); err != nil {
		return nil, err
	}
	r, err := c.Status(ctx)
	if err != nil {
		return nil, err
	}
	volumes, machines, err := c.look(ctx)
	if err != nil {
		return nil, err
	}
	out := &Replaced{NewVolume: v, Next: r.joins(v.Member)}
	for _, old := range volumes {
		if old.Member != v.Member {
			continue
		}
		used, err := read[etcd.Used](ctx, c.Records, etcd.UsedObject(old.ID))
		if err != nil {
			return nil, err
		}
		if err := refuse(old, used != nil); err != nil {
			return nil, err
		}
		out.Volume, out.Zone = old.ID, old.Zone
	}
	if out.Volume != "" {
		return out, nil
	}
	if out.Zone, err = zoneOf(v, machines); err != nil {
		return nil, err
	}
	if dryRun {
		return out, nil
	}
	// Two people at once make one volume: both know of the same last one.
	if out.Volume, err = c.makeAfter(ctx, out.NewVolume, lastVolume(r, v.Member)); err != nil {
		return nil, err
	}
	out.Made = true
	return out, nil
}

const (
	// seenWithin is how long EC2 may take to show a volume that it has made, and seenEvery how often it is asked.
	seenWithin, seenEvery = time.Minute, 2 * time.Second
	// unseen is how many volumes may be made of which EC2 shows none: more are an account that does not show any.
	unseen = 5
)

// makeAfter makes the volume that follows a member's last one: the same, however often and by whomever it is asked for. If
// that one is gone again, before any member said that it has it, the next follows it. What EC2 answers to a token whose
// volume is deleted is not documented; it may be what it answered first.
func (c *Cluster) makeAfter(ctx context.Context, v NewVolume, last string) (string, error) {
	var all []string
	for range unseen {
		v.Token = c.token(v.Member, v.Zone, last)
		made, err := c.Cloud.Make(ctx, v)
		if err != nil {
			return "", err
		}
		if seen, err := c.sees(ctx, made); seen || err != nil {
			return made, err
		}
		all, last = append(all, made), made
	}
	return "", fmt.Errorf("volumes %s were made for member %s, now or before, and EC2 shows none of them with the tags of the cluster and the member: see what became of them with"+
		" aws ec2 describe-volumes --volume-ids %s", strings.Join(all, ", "), v.Member, strings.Join(all, " "))
}

// sees reports whether a volume is there, as soon as EC2 shows it.
func (c *Cluster) sees(ctx context.Context, id string) (bool, error) {
	for end := c.Clock.Now().Add(seenWithin); ; {
		volumes, err := c.Cloud.Volumes(ctx)
		if err != nil {
			return false, fmt.Errorf("volume %s is made; looking for it: %w", id, err)
		}
		if slices.ContainsFunc(volumes, func(v Volume) bool { return v.ID == id }) {
			return true, nil
		}
		if !c.Clock.Now().Before(end) {
			return false, nil
		}
		if err := c.Clock.Sleep(ctx, seenEvery); err != nil {
			return false, err
		}
	}
}

// token is the token by which EC2 makes one volume for a member in a zone after its last one, however often it is asked for.
func (c *Cluster) token(member, zone, last string) string {
	sum := sha256.Sum256([]byte(strings.Join([]string{c.Name, member, zone, last}, "\n")))
	return "hardtack-" + hex.EncodeToString(sum[:16])
}

// replaceable refuses a member whose data are on no volume that could be made.
func (c *Cluster) replaceable(member string) error {
	switch {
	case !slices.Contains(c.Members, member):
		return fmt.Errorf("%q is no member of etcd: they are %s", member, strings.Join(c.Members, ", "))
	case c.Storage == machine.StorageDisk:
		return fmt.Errorf("the data of member %s are on a local disk: put a new disk into its machine, name it in etcd.disks of the document, and boot the machine with the new user data", member)
	case c.Storage != machine.StorageVolume:
		return fmt.Errorf("the data of member %s are on its machine's own disk: there is no volume to make; with etcd.storage: volume they outlive the machine", member)
	case c.Cloud == nil:
		return fmt.Errorf("the volume of member %s is in EC2, and the store %s says nothing about an account", member, c.Records)
	}
	return nil
}

// refuse refuses to make a volume beside another one: a machine takes neither of two. One that has never had data is as
// good as a new one.
func refuse(old Volume, used bool) error {
	switch {
	case !used:
		return nil
	case old.Held():
		return fmt.Errorf("volume %s of member %s is held by %s, which is %s and may be writing to it: end that machine first, and look again with hardtack etcd status", old.ID, old.Member, old.Holder, old.HolderState)
	}
	return fmt.Errorf("volume %s of member %s is there, with its data: the member's machine attaches it by itself. Only if it is lost for good, keep it for a look with"+
		" aws ec2 delete-tags --resources %[1]s --tags Key=EtcdMember, or delete it, and run this command again", old.ID, old.Member)
}

func zoneOf(v NewVolume, machines []Machine) (string, error) {
	zone := v.Zone
	for _, m := range machines {
		switch {
		case m.Member != v.Member || m.Zone == zone:
		case zone != "":
			return "", fmt.Errorf("machine %s of member %s is in %s, not in %s: a volume is of use in its machine's zone only", m.ID, v.Member, m.Zone, zone)
		default:
			zone = m.Zone
		}
	}
	if zone == "" {
		return "", fmt.Errorf("member %s has no machine, whose zone its volume must be in: name the zone of its group", v.Member)
	}
	return zone, nil
}

// joins says what becomes of a member with a new volume.
func (r *Report) joins(member string) string {
	others := 0
	for _, m := range r.Members {
		if m.Healthy && m.Role != Learner && m.Name != member {
			others++
		}
	}
	if r.Outcome == Formed && others >= r.Quorum {
		return "its machine attaches the volume, makes its file system and joins as a learner; then it is promoted: hardtack etcd status shows it"
	}
	return fmt.Sprintf("its machine attaches the volume and waits: by their reports %d of the other members are healthy voters, and a quorum is %d", others, r.Quorum)
}

// lastVolume is the volume that a member reported last.
func lastVolume(r *Report, member string) string {
	for _, m := range r.Members {
		if m.Name == member && m.Status != nil {
			return m.Status.Volume
		}
	}
	return ""
}
