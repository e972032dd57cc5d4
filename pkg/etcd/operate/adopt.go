package operate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/hardtack/packer-plugin-hardtack/pkg/etcd"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki"
)

// AdoptOptions are the options of Adopt.
type AdoptOptions struct {
	// Token is the token that the cluster was started with; empty is the cluster's name, as role files had it.
	Token string
	// ClusterID is what a running member says; zero is not compared.
	ClusterID etcd.ID
	DryRun    bool
}

// Adopted is what Adopt did.
type Adopted struct {
	ClusterID etcd.ID            `json:"cluster_id"`
	Members   map[string]etcd.ID `json:"members"`
	// Machines are those that run them, as far as there is a cloud.
	Machines []Machine `json:"machines"`
	// Made is false where the records were there already.
	Made bool `json:"made"`
}

// leastAdopted is the least number of members of which one can be replaced by a machine that has nothing.
const leastAdopted = 3

// Adopt makes the records of a cluster that was started without them: epoch 1, formed as the cluster that its members are.
// From then on a machine without data joins them, and never starts another cluster.
func (c *Cluster) Adopt(ctx context.Context, o AdoptOptions) (*Adopted, error) {
	token := cmp.Or(o.Token, c.Name)
	out := &Adopted{ClusterID: etcd.ClusterID(token, c.Peers), Members: map[string]etcd.ID{}, Machines: []Machine{}}
	for _, p := range c.Peers {
		out.Members[p.Name] = etcd.MemberID(token, p.URL)
	}
	if len(c.Peers) < leastAdopted {
		return nil, fmt.Errorf("etcd of cluster %s has %d members: a machine without data joins at least two others, so that these data do not outlive their machines by records: copy what is needed out of the cluster, and make it anew", c.Name, len(c.Peers))
	}
	if o.ClusterID != 0 && o.ClusterID != out.ClusterID {
		return nil, fmt.Errorf("the running cluster is %s, and members %s with the token %q are %s: name the token, or the members, with which it was started",
			o.ClusterID, strings.Join(slices.Sorted(maps.Keys(out.Members)), ", "), token, out.ClusterID)
	}
	done, err := c.adopted(ctx, out)
	if err != nil || done {
		return out, err
	}
	if err := c.adoptable(ctx, o, out); err != nil || o.DryRun {
		return out, err
	}
	return out, c.adopt(ctx, out)
}

// adopted looks which records there are. Any but those of this very cluster forbid it.
func (c *Cluster) adopted(ctx context.Context, out *Adopted) (done bool, err error) {
	begin, err := read[etcd.Begin](ctx, c.Records, etcd.BeginObject(1))
	if err != nil {
		return false, err
	}
	outcome, err := read[etcd.Outcome](ctx, c.Records, etcd.OutcomeObject(1))
	if err != nil {
		return false, err
	}
	switch {
	case outcome != nil && (outcome.Formed == nil || outcome.Formed.ClusterID != out.ClusterID):
		return false, fmt.Errorf("%s of %s is another cluster's than %s: there is nothing to adopt (hardtack etcd status)", etcd.OutcomeObject(1), c.Records, out.ClusterID)
	case begin != nil && outcome == nil:
		return false, fmt.Errorf("%s of %s is there already, as hardtack pki create makes it for a new cluster: its members may start empty, as another one. If no machine was launched since, delete that record, and adopt the cluster then", etcd.BeginObject(1), c.Records)
	}
	return begin != nil, nil
}

// adoptable refuses what is not a running cluster without records.
func (c *Cluster) adoptable(ctx context.Context, o AdoptOptions, out *Adopted) error {
	volumes, machines, err := c.look(ctx)
	if err != nil {
		return err
	}
	if c.Cloud == nil && o.ClusterID == 0 {
		return errors.New("nothing shows that the cluster runs: give the cluster ID that a member says (etcdctl endpoint status -w json has cluster_id, in decimal)")
	}
	out.Machines = append(out.Machines, machines...)
	for _, p := range c.Peers {
		status, err := read[etcd.Status](ctx, c.Records, etcd.StatusObject(p.Name))
		if err != nil {
			return err
		}
		if status != nil {
			return fmt.Errorf("member %s has reported from %s: it was started by records, and those are lost: put them back", p.Name, status.Instance)
		}
		running := slices.ContainsFunc(machines, func(m Machine) bool { return m.Member == p.Name && m.State == "running" })
		if c.Cloud != nil && !running {
			return fmt.Errorf("member %s has no machine that runs: adopt a cluster only while all its members do", p.Name)
		}
	}
	for _, v := range volumes {
		used, err := read[etcd.Used](ctx, c.Records, etcd.UsedObject(v.ID))
		if err != nil {
			return err
		}
		if used != nil {
			return fmt.Errorf("volume %s of member %s has data of epoch %d: the records of that epoch are lost: put them back", v.ID, v.Member, used.Epoch)
		}
	}
	return nil
}

// adopt creates the records. The outcome comes first: with a begin alone a machine without data would start a cluster. And
// the begin has a token of its own, which no cluster has, for who still reads that there is no outcome.
func (c *Cluster) adopt(ctx context.Context, out *Adopted) error {
	formed := etcd.Outcome{Formed: &etcd.Formed{ClusterID: out.ClusterID, Members: out.Members}}
	err := c.Records.Create(ctx, etcd.OutcomeObject(1), etcd.Encode(formed))
	if errors.Is(err, pki.ErrExists) { // an earlier run's: it was compared, unless somebody else works just now
		if done, err := c.adopted(ctx, out); err != nil || done {
			return err
		}
	} else if err != nil {
		return fmt.Errorf("adopting cluster %s: %w", out.ClusterID, err)
	}
	err = c.Records.Create(ctx, etcd.BeginObject(1), etcd.Encode(etcd.Begin{Token: etcd.NewToken(), Members: c.Peers}))
	if out.Made = err == nil; errors.Is(err, pki.ErrExists) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("adopting cluster %s: %w; run the command again", out.ClusterID, err)
	}
	return nil
}
