package cluster

import (
	"context"
	"errors"
	"fmt"

	"github.com/hardtack/packer-plugin-hardtack/pkg/cluster/rollout"
	"github.com/hardtack/packer-plugin-hardtack/pkg/etcd"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/machine"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// move is a member of etcd that the document gives to another group. grows: it has had no name for others so far.
type move struct {
	from  rollout.Group
	to    string
	grows bool
}

// moves are the members that change their group. That is also how the only member gets others: the group that names it is
// another one.
func (c *Cluster) moves(now rollout.State) (all []move) {
	for _, g := range now.Groups {
		grows := len(g.Members) == 0 && len(c.config.Document.Info().Etcd.Members) > 0
		if grows {
			g.Member = machine.LoneMember // which its group may not say
		}
		for _, d := range c.config.Document.Groups {
			if g.Roles.Has(role.Etcd) && g.Member != "" && d.Member == g.Member && (d.Name != g.Key || grows) {
				all = append(all, move{g, d.Name, grows})
			}
		}
	}
	return all
}

// keepsUnread refuses to end a group of the control plane that could not be read, or to give its member of etcd to another one: whether
// its data stay cannot be judged. The error is an *UnreadableError. A group that is gone has nothing to lose.
func (c *Cluster) keepsUnread(now rollout.State) error {
	e, named := UnreadableError{Cluster: c.name}, c.config.Document.Info().Etcd.Members
	for _, u := range now.Unread {
		if !u.Control || u.Gone {
			continue
		}
		g, err := c.config.Document.Group(u.Key)
		grows := g.Member != "" && len(u.Members) == 0 && len(named) > 0
		lone := g.Member == machine.LoneMember && u.Member == "" && len(named) == 0 // whose group may not say so
		if err != nil || grows || u.Member != g.Member && !lone {
			e.Groups = append(e.Groups, u)
		}
	}
	if len(e.Groups) == 0 {
		return nil
	}
	return &e
}

// keepsData refuses to give a member of etcd to another group unless the machine of that one can go on with its data: on the
// member's volume, of a cluster that is well and has a recent backup. The error is a *VolumesError.
func (c *Cluster) keepsData(ctx context.Context, now rollout.State) error {
	if len(c.moves(now)) == 0 {
		return nil
	}
	machines, err := c.own(ctx)
	if err != nil {
		return err
	}
	if m, err := c.members(); err != nil {
		return err
	} else if m != nil {
		machines.Members = m
	}
	if now, err = machines.Read(ctx); err != nil {
		return err
	}
	e := VolumesError{Cluster: c.name}
	for _, m := range c.moves(now) {
		why, err := c.stays(ctx, now, m)
		if err != nil {
			return err
		}
		if why != "" {
			e.Problems = append(e.Problems, fmt.Sprintf("member %s: %s", m.from.Member, why))
		}
	}
	if len(e.Problems) == 0 {
		return nil
	}
	return &e
}

// stays says why a member cannot be given to another group; empty if it can.
func (c *Cluster) stays(ctx context.Context, now rollout.State, m move) (string, error) {
	if m.from.Key == m.to {
		return fmt.Sprintf("its group %s would stay, and its machine is not one that others reach: give the members' group another name", m.to), nil
	}
	if text := now.Stays(m.from); len(m.from.Machines) > 0 && text != "" {
		return fmt.Sprintf("it moves from group %s to %s, whose machine goes on with its volume, and %s", m.from.Key, m.to, text), nil
	}
	if !m.grows {
		return "", nil
	}
	formed, err := c.formed(ctx, now.Etcd.Epoch)
	if err == nil && !formed {
		return fmt.Sprintf("it has not formed a cluster yet (epoch %d), which it can only alone: let its machine start first", now.Etcd.Epoch), nil
	}
	return "", err
}

// formed reports whether an epoch's first start has succeeded.
func (c *Cluster) formed(ctx context.Context, epoch int) (bool, error) {
	m, err := c.members()
	if err != nil || m == nil || epoch == 0 {
		return false, err
	}
	text, err := m.store.Get(ctx, etcd.OutcomeObject(epoch))
	if errors.Is(err, pki.ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("reading the outcome of etcd's epoch %d: %w", epoch, err)
	}
	outcome, err := etcd.Parse[etcd.Outcome](text)
	return err == nil && outcome.Formed != nil, err
}
