package rollout

import (
	"fmt"
	"slices"
	"strings"

	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// Loss is what would be lost with a group's machine.
type Loss struct {
	// Group is the document's name.
	Group string `json:"group"`
	Text  string `json:"text"`
}

// Refusal says what is not replaced without leave, and what may be.
type Refusal struct {
	Losses []Loss `json:"losses"`
	// Safe are the groups that may be replaced, by the document's names.
	Safe []string `json:"safe"`
}

func (r *Refusal) Error() string {
	var b strings.Builder
	b.WriteString("replacing machines of etcd: what they keep is on their own disks, and ends with them")
	var lose []string
	for _, l := range r.Losses {
		fmt.Fprintf(&b, "\n  %s: %s", l.Group, l.Text)
		lose = append(lose, "--lose-etcd "+l.Group)
	}
	if len(r.Safe) > 0 {
		fmt.Fprintf(&b, "\nsafe is: hardtack stack refresh --group %s", strings.Join(r.Safe, " --group "))
	} else {
		b.WriteString("\nnothing else is to be replaced")
	}
	fmt.Fprintf(&b, "\nto go on all the same, with a snapshot of etcd at hand: %s", strings.Join(lose, " "))
	return b.String()
}

// Refuse is an error where machines would be replaced whose loss is one of data, unless their group is in lose. It is a
// *Refusal, or says which name is not a group's.
func Refuse(s State, only, lose []string) error {
	if err := s.known(append(slices.Clone(only), lose...)); err != nil {
		return err
	}
	var r Refusal
	for _, g := range s.ordered() {
		switch {
		case !g.Chosen(only) || len(g.Stale()) == 0 && len(g.Launches.Differs(g.Wanted)) == 0:
		case !g.Roles.Has(role.Etcd) || g.Durable || len(g.Stale()) == 0 || slices.Contains(lose, g.Key) || slices.Contains(lose, g.Name):
			r.Safe = append(r.Safe, g.Key)
		default:
			r.Losses = append(r.Losses, Loss{g.Key, g.loss()})
		}
	}
	if len(r.Losses) == 0 {
		return nil
	}
	return &r
}

// loss is what ends with a machine of etcd whose disk is its own.
func (g Group) loss() string {
	switch n := len(g.Members); {
	case n <= 1:
		return "it is all of etcd: every object of the cluster would be gone, and the new machine begins an empty cluster"
	case n == 2:
		return "of two members each is needed: without it etcd takes no writes any more, and its replacement does not rejoin by itself"
	default:
		return fmt.Sprintf("etcd goes on with %d of %d members, and the replacement does not rejoin by itself: `etcdctl member remove` and `member add` it while it starts, "+
			"with etcd.flags.initial-cluster-state: existing in the document", n-1, n)
	}
}

// known complains about names that no group has.
func (s State) known(names []string) error {
	var keys []string
	for _, g := range s.ordered() {
		keys = append(keys, g.Key)
	}
	for _, name := range names {
		if _, ok := s.group(name); !ok {
			return fmt.Errorf("group %q is not one of %s: the groups are %s", name, s.Cluster, strings.Join(keys, ", "))
		}
	}
	return nil
}
