package operate

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/etcd"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki"
)

// Object is a backup, as its name and its description beside it say.
type Object struct {
	Name   string    `json:"name"`
	Epoch  int       `json:"epoch"`
	Member string    `json:"member"`
	Taken  time.Time `json:"taken"`
	// Revision is the last that it has, Keys how many keys there are, and Size is in bytes.
	Revision  int64   `json:"revision"`
	Keys      int64   `json:"keys"`
	Size      int64   `json:"size"`
	SHA256    string  `json:"sha256"`
	ClusterID etcd.ID `json:"cluster_id"`
	Version   string  `json:"version"`
}

// Backups is where a cluster's backups are.
type Backups interface {
	// List returns the backups in any order.
	List(ctx context.Context) ([]Object, error)
	// Open returns the content of a backup.
	Open(ctx context.Context, name string) (io.ReadCloser, error)
	String() string
}

// Latest is the backup of the cluster that was taken last, as RestoreOptions.From.
const Latest = "latest"

// RestoreOptions are the options of Restore.
type RestoreOptions struct {
	// From is a backup's name, or Latest.
	From string
	// LoseSince is the time since when the operator gives up what was written; zero gives up nothing.
	LoseSince time.Time
	// Off are members that the operator declares switched off.
	Off []string
	// Again begins an epoch also where the newest one is being restored from another backup or for other members, and is
	// then abandoned, or was formed from this one.
	Again bool
	// DryRun changes nothing, and accepts no loss either.
	DryRun bool
}

// Restored is what Restore did.
type Restored struct {
	Backup Object `json:"backup"`
	// Epoch is the epoch that starts from the backup; Begun is false where another run has begun it.
	Epoch int  `json:"epoch"`
	Begun bool `json:"begun"`
	// Formed: its members have started, and clients reach them.
	Formed bool `json:"formed"`
	Loss   Loss `json:"loss"`
	// Voters are the voters of the epoch that is left, and how each leaves it.
	Voters []Leaver `json:"voters"`
	// Serving: a quorum of them runs. They serve until their machines see the new epoch.
	Serving bool `json:"serving"`
	// Newer is a backup of the cluster that was taken later; empty if there is none.
	Newer string `json:"newer,omitempty"`
}

// Loss is what a restore loses: every write after Since that was acknowledged.
type Loss struct {
	Since time.Time `json:"since"`
	// Epoch is the epoch that is left, and Until the time until when its members are known to have taken writes: of their
	// newest report, in which one had Revision. Both are zero if none has reported.
	Epoch    int       `json:"epoch"`
	Until    time.Time `json:"until,omitzero"`
	Revision int64     `json:"revision,omitzero"`
	// AtLeast is how many revisions are lost by those reports. It is 0 where the backup is of an earlier epoch: then all of
	// the epoch is lost.
	AtLeast int64 `json:"at_least,omitzero"`
}

// Leaver is a voter of the epoch that is left.
type Leaver struct {
	Member string `json:"member"`
	// How is one of the values below.
	How string `json:"how"`
	Why string `json:"why"`
}

// The values of Leaver.How.
const (
	// Sees: its machine has just reported, so that it reads the store and will see the new epoch.
	Sees = "sees"
	// Gone: no machine has its data.
	Gone = "gone"
	// Off: the operator says that it is switched off.
	Off = "off"
	// Blind: a machine may run it that does not read the store.
	Blind = "blind"
)

// attempts bounds how often others may be first: members' machines begin the epoch after an abandoned one by themselves.
const attempts = 10

// Restore begins an epoch that starts from a backup; the members' machines do the rest. Repeated, it goes on with what an
// earlier run has begun. The result is also there with an error that refuses, as far as it was found out.
func (c *Cluster) Restore(ctx context.Context, o RestoreOptions) (*Restored, error) {
	now := c.Clock.Now()
	if o.LoseSince.After(now) {
		return nil, fmt.Errorf("the time %s, since when writes may be lost, is in the future: now is %s", stamp(o.LoseSince), stamp(now))
	}
	out := &Restored{Voters: []Leaver{}}
	checked := false
	for range attempts {
		all, err := c.epochs(ctx)
		if err != nil {
			return out, err
		}
		if err := c.choose(ctx, all, o, out); err != nil {
			return out, err
		}
		if done, err := c.underWay(newest(all), o, out); done || err != nil {
			return out, err
		}
		begin, err := c.leave(ctx, all, o, out)
		if err != nil {
			return out, err
		}
		if err := accepted(o, out); err != nil {
			return out, err
		}
		if !checked {
			if err := c.whole(ctx, out.Backup); err != nil {
				return out, err
			}
			checked = true
		}
		if o.DryRun {
			return out, nil
		}
		if out.Begun, err = c.begin(ctx, newest(all), begin); err != nil || out.Begun {
			return out, err
		}
	}
	return out, fmt.Errorf("others began epochs %d times just before this command could: look with hardtack etcd status, and repeat it", attempts)
}

// stamp is a time as commands take it, rounded down: the second in which a backup was taken is part of what is lost.
func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// choose finds the backup. Only one of this cluster's own epochs will do.
func (c *Cluster) choose(ctx context.Context, all []epoch, o RestoreOptions, out *Restored) error {
	list, err := c.sorted(ctx)
	if err != nil {
		return err
	}
	var own []Object
	for _, b := range list {
		if clusterOf(all, b) == nil {
			own = append(own, b)
		}
	}
	if o.From == Latest {
		if len(own) == 0 {
			return fmt.Errorf("%s has no backup of a cluster that was formed by the records of %s: hardtack etcd backup list shows what is there", c.Backups, c.Records)
		}
		out.Backup = own[0]
		if r := restored(newest(all), own); r != nil && own[0].Epoch == len(all) && !o.Again && !o.LoseSince.IsZero() && !o.LoseSince.After(r.Taken) {
			out.Backup = *r // the loss that is accepted is that restore's, and not of what was written since
		}
	} else {
		i := slices.IndexFunc(list, func(b Object) bool { return b.Name == o.From })
		if i < 0 {
			return fmt.Errorf("%s has no backup %q: hardtack etcd backup list shows what is there", c.Backups, o.From)
		}
		out.Backup = list[i]
		if err := clusterOf(all, out.Backup); err != nil {
			return fmt.Errorf("the backup %s is not of this cluster: %w", o.From, err)
		}
	}
	if out.Newer = ""; len(own) > 0 && own[0].Taken.After(out.Backup.Taken) {
		out.Newer = own[0].Name
	}
	if now := c.Clock.Now(); out.Backup.Taken.After(now.Add(fresh)) {
		return fmt.Errorf("the backup %s was taken at %s, and now is %s: set this computer's clock right", out.Backup.Name, stamp(out.Backup.Taken), stamp(now))
	}
	return nil
}

// restored returns the backup that an epoch starts from; nil if it starts empty, or its backup is not in the list.
func restored(e epoch, list []Object) *Object {
	if e.begin == nil || e.begin.Restore == nil {
		return nil
	}
	if i := slices.IndexFunc(list, func(b Object) bool { return same(e.begin.Restore, b) }); i >= 0 {
		return &list[i]
	}
	return nil
}

// clusterOf reports of which other cluster a backup is; nil if it is of one of the epochs.
func clusterOf(all []epoch, b Object) error {
	if b.Epoch < 1 || b.Epoch > len(all) {
		return fmt.Errorf("it is of epoch %d, and the store has %d", b.Epoch, len(all))
	}
	if f := all[b.Epoch-1].formed(); f == nil {
		return fmt.Errorf("it is of epoch %d, which was never formed", b.Epoch)
	} else if f.ClusterID != b.ClusterID {
		return fmt.Errorf("it is of cluster %s, and epoch %d is cluster %s", b.ClusterID, b.Epoch, f.ClusterID)
	}
	return nil
}

// underWay looks whether an earlier run has begun this restore, or another one.
func (c *Cluster) underWay(last epoch, o RestoreOptions, out *Restored) (done bool, err error) {
	out.Epoch, out.Formed = last.number, last.formed() != nil
	from := last.begin.Restore
	others := last.outcome == nil && !samePeers(last.begin.Members, c.Peers)
	if from == nil || o.Again && (out.Formed || others || !same(from, out.Backup)) {
		return false, nil
	}
	switch {
	case others: // too few of the voters before may be among them for the epoch ever to form
		var members []string
		for _, p := range last.begin.Members {
			members = append(members, p.Name)
		}
		return false, fmt.Errorf("epoch %d is being restored from %s for the members %s, and those of the document are %s: hardtack etcd status shows how far it is; --again abandons it, and begins another epoch from %s",
			last.number, from.Object, strings.Join(members, ", "), strings.Join(c.Members, ", "), out.Backup.Name)
	case same(from, out.Backup):
		// After an abandoned start the machines begin the next epoch from the same backup, and so may we.
		return last.outcome == nil || out.Formed, nil
	case out.Formed:
		return false, nil
	}
	return false, fmt.Errorf("epoch %d is being restored from %s: hardtack etcd status shows how far it is; --again abandons it, and begins another epoch from %s", last.number, from.Object, out.Backup.Name)
}

// samePeers compares members with their URLs, whatever their order.
func samePeers(a, b []etcd.Peer) bool {
	byName := func(x, y etcd.Peer) int { return strings.Compare(x.Name, y.Name) }
	return slices.Equal(slices.SortedFunc(slices.Values(a), byName), slices.SortedFunc(slices.Values(b), byName))
}

func same(r *etcd.Restore, b Object) bool { return r.Object == b.Name && r.SHA256 == b.SHA256 }

// leave says what is left and lost, and returns the begin of the new epoch. It refuses where what is left may go on without
// having seen that.
func (c *Cluster) leave(ctx context.Context, all []epoch, o RestoreOptions, out *Restored) (*etcd.Begin, error) {
	out.Epoch, out.Formed = newest(all).number+1, false
	last := all[len(all)-1]
	for last.formed() == nil { // the backup's epoch is formed
		last = all[last.number-2]
	}
	s := &sight{Cluster: c, off: o.Off, epoch: last, now: c.Clock.Now()}
	if err := s.look(ctx); err != nil {
		return nil, err
	}
	out.Loss = s.loss(out.Backup)
	voters, gone := s.voters()
	if err := s.declared(append(slices.Clone(voters), gone...)); err != nil {
		return nil, err
	}
	out.Voters, out.Serving = s.leavers(voters), s.serving(voters)
	if err := c.leavable(s, voters, gone, out); err != nil {
		return nil, err
	}
	b := out.Backup
	return &etcd.Begin{Token: etcd.NewToken(), Members: slices.Clone(c.Peers), Previous: voters, Off: slices.Clone(o.Off),
		Restore: &etcd.Restore{Object: b.Name, SHA256: b.SHA256, Revision: b.Revision}}, nil
}

// leavable refuses to leave an epoch of which a quorum may go on without seeing it.
func (c *Cluster) leavable(s *sight, voters, gone []string, out *Restored) error {
	if len(voters) == 0 {
		return fmt.Errorf("the document names none of the members of epoch %d, which are %s", s.epoch.number, strings.Join(gone, ", "))
	}
	for _, name := range gone {
		if l := s.leaver(name); l.How != Off && l.How != Gone {
			return fmt.Errorf("member %s of epoch %d is not in the document, and %s: end its machine, or say that it is switched off with --off %[1]s", name, s.epoch.number, l.Why)
		}
	}
	var blind []string
	for _, l := range out.Voters {
		if l.How == Blind {
			blind = append(blind, l.Member+": "+l.Why)
		}
	}
	if quorum := etcd.Quorum(len(voters)); len(blind) >= quorum {
		return fmt.Errorf("a quorum of epoch %d may still run and take writes without seeing a new one, as these members have not reported for %s:\n  %s\nend their machines, or name those that are switched off for certain with --off MEMBER",
			s.epoch.number, fresh, strings.Join(blind, "\n  "))
	}
	return nil
}

// accepted refuses a loss that the operator has not accepted; a dry run may be there to see what it would be.
func accepted(o RestoreOptions, out *Restored) error {
	since := out.Loss.Since
	switch {
	case o.LoseSince.IsZero() && o.DryRun:
	case o.LoseSince.IsZero():
		return fmt.Errorf("what was written since %s would be lost, and that is not accepted: --lose-writes-since %[1]s accepts it", stamp(since))
	case since.Before(o.LoseSince):
		return fmt.Errorf("the loss begins at %s, before %s, since when it is accepted: choose a later backup, or accept it with --lose-writes-since %[1]s", stamp(since), stamp(o.LoseSince))
	}
	return nil
}

// whole reads a backup and compares it with its digest: an epoch that starts from another content would start nowhere.
func (c *Cluster) whole(ctx context.Context, b Object) error {
	r, err := c.Backups.Open(ctx, b.Name)
	if err != nil {
		return fmt.Errorf("reading the backup %s: %w", b.Name, err)
	}
	defer r.Close()
	sum := sha256.New()
	size, err := io.Copy(sum, r)
	if err != nil {
		return fmt.Errorf("reading the backup %s: %w", b.Name, err)
	}
	if got := hex.EncodeToString(sum.Sum(nil)); got != b.SHA256 || size != b.Size {
		return fmt.Errorf("the backup %s is damaged: it has %d bytes with SHA-256 %s, and should have %d with %s: choose another one (hardtack etcd backup list)", b.Name, size, got, b.Size, b.SHA256)
	}
	return nil
}

// begin creates the begin of the epoch after the last one, which gets an outcome first. begun is false if somebody else was
// first.
func (c *Cluster) begin(ctx context.Context, last epoch, begin *etcd.Begin) (begun bool, err error) {
	create := func(object string, content []byte) (bool, error) {
		err := c.Records.Create(ctx, object, content)
		if errors.Is(err, pki.ErrExists) {
			return false, nil
		}
		if err != nil {
			return false, fmt.Errorf("beginning epoch %d: %w", last.number+1, err)
		}
		return true, nil
	}
	if last.outcome == nil {
		why := fmt.Sprintf("the operator restores %s", begin.Restore.Object)
		if ok, err := create(etcd.OutcomeObject(last.number), etcd.Encode(etcd.Outcome{Abandoned: why})); !ok || err != nil {
			return false, err
		}
	}
	return create(etcd.BeginObject(last.number+1), etcd.Encode(*begin))
}
