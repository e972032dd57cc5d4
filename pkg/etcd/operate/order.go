package operate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/etcd"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki"
)

// Asked is an order to the machine of the leader, and what became of it.
type Asked struct {
	// Number is the order's number; 0 if nothing was asked for.
	Number int       `json:"order,omitzero"`
	Epoch  int       `json:"epoch"`
	Verb   etcd.Verb `json:"verb"`
	Member string    `json:"member,omitempty"`
	// Leader is the member whose machine carries it out, by its last report; empty if none reports to lead.
	Leader string `json:"leader,omitempty"`
	// Answer is nil while there is none.
	Answer *etcd.Answer `json:"answer,omitempty"`
	// Warning says what the person should know, empty if nothing.
	Warning string `json:"warning,omitempty"`
}

// Backup asks the leader's machine for a backup. An order that is not answered yet is returned in place of a second one.
func (c *Cluster) Backup(ctx context.Context) (*Asked, error) {
	if c.Backups == nil {
		return nil, c.noPlace()
	}
	r, err := c.Status(ctx)
	if err != nil {
		return nil, err
	}
	if r.Outcome != Formed {
		return nil, fmt.Errorf("epoch %d of cluster %s is not formed: nobody can take a backup of it (hardtack etcd status)", r.Epoch, c.Name)
	}
	return c.ask(ctx, r, etcd.Order{Verb: etcd.AskBackup}, false)
}

// Defrag asks the leader's machine to defragment all members, one after another. An order that is not answered yet is
// returned in place of a second one.
func (c *Cluster) Defrag(ctx context.Context, dryRun bool) (*Asked, error) {
	r, err := c.Status(ctx)
	if err != nil {
		return nil, err
	}
	if r.Outcome != Formed {
		return nil, fmt.Errorf("etcd of %s is not formed: there is nothing to defragment", c.Name)
	}
	return c.ask(ctx, r, etcd.Order{Verb: etcd.AskDefrag}, dryRun)
}

// Remove asks the leader's machine to remove a member, whose group can then leave the document. What is refused here is
// refused by what members report; the leader's machine asks the members themselves.
func (c *Cluster) Remove(ctx context.Context, member string, dryRun bool) (*Asked, error) {
	r, err := c.Status(ctx)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(r.Members, func(m Member) bool { return m.Name == member })
	switch {
	case i < 0:
		return nil, fmt.Errorf("%q is no member of etcd: they are %s", member, strings.Join(c.Members, ", "))
	case r.Outcome != Formed:
		return nil, fmt.Errorf("etcd of %s is not formed: there is no membership to change", c.Name)
	case len(c.Members) == 1:
		return nil, fmt.Errorf("member %s is the only one: with it the cluster ends", member)
	}
	s := r.Members[i].Status
	if s == nil || s.MemberID == 0 || s.Epoch != r.Epoch {
		return nil, fmt.Errorf("member %s has never reported from epoch %d: it is none of the cluster's, and its group can leave the document", member, r.Epoch)
	}
	rest, others := 0, 0
	for _, m := range r.Members {
		if m.Name == member || m.Status == nil || m.Role == "" {
			continue
		}
		rest++
		if m.Healthy && m.Role != Learner {
			others++
		}
	}
	if q := etcd.Quorum(max(rest, 1)); others < q {
		return nil, fmt.Errorf("removing member %s: by their reports %d of the %d other members are healthy voters, and a quorum of them is %d: hardtack etcd status says what is wrong", member, others, rest, q)
	}
	place := s.Volume
	if place == "" {
		place = s.Instance
	}
	out, err := c.ask(ctx, r, etcd.Order{Verb: etcd.AskRemove, Member: member, ID: s.MemberID, Place: place}, dryRun)
	if err == nil && rest%2 == 0 {
		out.Warning = fmt.Sprintf("%d members remain, which bear the loss of %d: no more than %d do", rest, (rest-1)/2, rest-1)
	}
	return out, err
}

// ask creates the order with the first free number, after those that are answered.
func (c *Cluster) ask(ctx context.Context, r *Report, order etcd.Order, dryRun bool) (*Asked, error) {
	out := &Asked{Verb: order.Verb, Member: order.Member}
	for _, m := range r.Members {
		if m.Role == Leader {
			out.Leader = m.Name
		}
	}
	order.At, out.Epoch = c.Clock.Now().UTC(), r.Epoch
	for n := 1; ; n++ {
		before, err := read[etcd.Order](ctx, c.Records, etcd.OrderObject(r.Epoch, n))
		if err != nil {
			return nil, err
		}
		if before == nil && dryRun {
			return out, nil
		}
		if before == nil {
			err = c.Records.Create(ctx, etcd.OrderObject(r.Epoch, n), etcd.Encode(order))
			if errors.Is(err, pki.ErrExists) {
				n-- // somebody else was first: read what
				continue
			}
			out.Number = n
			return out, err
		}
		answer, err := read[etcd.Answer](ctx, c.Records, etcd.AnswerObject(r.Epoch, n))
		if err != nil {
			return nil, err
		}
		if answer == nil && before.Verb == order.Verb && before.Member == order.Member {
			out.Number = n
			return out, nil
		}
	}
}

// orderEvery is the time between two looks for an answer.
const orderEvery = 5 * time.Second

// AwaitOrder waits for the answer to an order and tells told, which may be nil, of each step that the leader's machine reports.
// The answer's error is an error.
func (c *Cluster) AwaitOrder(ctx context.Context, a *Asked, told func(string)) error {
	seen := map[string]bool{}
	tell := func(text string) {
		if text != "" && !seen[text] && told != nil {
			told(text)
		}
		seen[text] = true
	}
	for {
		answer, err := read[etcd.Answer](ctx, c.Records, etcd.AnswerObject(a.Epoch, a.Number))
		if err != nil {
			return err
		}
		if answer != nil {
			a.Answer = answer
			for _, step := range answer.Done {
				tell(step)
			}
			if answer.Error != "" {
				return fmt.Errorf("order %d: the machine of member %s says: %s\n  next: %s", a.Number, answer.Member, answer.Error, answer.Next)
			}
			return nil
		}
		for _, name := range c.Members {
			s, err := read[etcd.Status](ctx, c.Records, etcd.StatusObject(name))
			if err != nil {
				return err
			}
			if s != nil && s.Work != nil && s.Work.Order == a.Number {
				for _, step := range s.Work.Done {
					tell(step)
				}
				tell("member " + name + ": " + s.Work.Doing)
			}
		}
		if err := c.Clock.Sleep(ctx, orderEvery); err != nil {
			return fmt.Errorf("waiting for the answer to order %d (it is carried out all the same): %w", a.Number, err)
		}
	}
}
