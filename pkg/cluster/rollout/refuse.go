package rollout

import (
	"fmt"
	"slices"
	"strings"

	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// Refuse fails if a rollout would lose the data of etcd on a group that is not in lose: the error is a *Refusal. It also
// fails if only or lose has a name that no group has, and with an *UnreadError if it needs a group that could not be read.
func Refuse(s State, only, lose []string) error {
	if err := s.checkNames(append(slices.Clone(only), lose...)); err != nil {
		return err
	}
	if err := RefuseUnread(s, only); err != nil {
		return err
	}
	var r Refusal
	for _, g := range s.ordered() {
		switch {
		case !g.Chosen(only) || !g.Behind():
		case !g.Roles.Has(role.Etcd) || len(g.Stale()) == 0 || g.in(lose) || s.doubt(g) == "":
			r.Safe = append(r.Safe, g.Key)
		default:
			r.Losses = append(r.Losses, Loss{g.Key, g.loss() + " (" + s.doubt(g) + ")"})
		}
	}
	if len(r.Losses) == 0 {
		return nil
	}
	return &r
}

// RefuseUnread fails if a rollout of the groups in only, empty for all, needs one that could not be read: because it is among the names
// in only, because nothing else is left to roll out, or because it may be of the control plane, of which a machine would end. How many
// masters and members of etcd serve is not known then. The error is an *UnreadError. Minions are replaced without it.
func RefuseUnread(s State, only []string) error {
	e := UnreadError{}
	for _, u := range s.Unread {
		if u.named(only) || len(s.Groups) == 0 {
			e.Groups = append(e.Groups, u)
		}
	}
	if len(e.Groups) > 0 {
		return &e
	}
	for _, g := range s.ordered() {
		switch {
		case !g.Chosen(only) || !g.Behind():
		case g.Control():
			e.Blocked = append(e.Blocked, g.Key)
		default:
			e.Safe = append(e.Safe, g.Key)
		}
	}
	if len(e.Blocked) == 0 {
		return nil
	}
	for _, u := range s.Unread {
		if u.Control {
			e.Groups = append(e.Groups, u)
		}
	}
	if len(e.Groups) == 0 {
		return nil
	}
	return &e
}

// loss describes what follows if the data of the group's member end with its machine.
func (g Group) loss() string {
	switch n := len(g.Members); {
	case n <= 1:
		return "it is all of etcd: every object of the cluster would be gone, and the new machine begins an empty cluster"
	case n == 2:
		return "of two members each is needed: without it etcd takes no writes any more, and only `hardtack etcd restore` goes on"
	default:
		return fmt.Sprintf("etcd goes on with %d of %d members; the new machine finds the disk empty, and takes the member's place by itself once the old one has been silent for a minute and all others are well: "+
			"replace one such group at a time, after hardtack etcd status says that all are voters", n-1, n)
	}
}

// checkNames fails if no group has one of the names.
func (s State) checkNames(names []string) error {
	var keys []string
	for _, g := range s.ordered() {
		keys = append(keys, g.Key)
	}
	for _, u := range s.Unread {
		keys = append(keys, u.Key)
	}
	for _, name := range names {
		unread := slices.ContainsFunc(s.Unread, func(u Unread) bool { return u.named([]string{name}) })
		if _, ok := s.group(name); !ok && !unread {
			return fmt.Errorf("group %q is not one of %s: the groups are %s", name, s.Cluster, strings.Join(keys, ", "))
		}
	}
	return nil
}
