package rollout_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/cluster/rollout"
)

// hide makes a group unreadable.
func hide(s rollout.State, key string) rollout.State {
	i := slices.IndexFunc(s.Groups, func(g rollout.Group) bool { return g.Key == key })
	g := s.Groups[i]
	s.Groups = slices.Delete(slices.Clone(s.Groups), i, i+1)
	s.Unread = append(s.Unread, rollout.Unread{Group: g.Name, Key: g.Key, Control: g.Control(), Member: g.Member, Members: g.Members, Why: "group " + g.Name + ": AWS refused"})
	return s
}

// A group that could not be read blocks itself, and, if it may be of the control plane, the machines of the control plane.
func TestRefuseUnread(t *testing.T) {
	all := []string{"etcd-a", "etcd-b", "etcd-c", "masters"}
	for name, tt := range map[string]struct {
		hidden string
		only   []string
		want   string // the groups of the error: unread; blocked; safe
	}{
		"minions, and all":         {"minions", nil, ""},
		"minions, and etcd":        {"minions", []string{"etcd-a"}, ""},
		"minions, and themselves":  {"minions", []string{"minions"}, "minions;;"},
		"by the name in AWS":       {"minions", []string{"demo-minions"}, "minions;;"},
		"a member, and all":        {"etcd-b", nil, "etcd-b;etcd-a etcd-c masters;minions"},
		"a member, and another":    {"etcd-b", []string{"etcd-a"}, "etcd-b;etcd-a;"},
		"a member, and minions":    {"etcd-b", []string{"minions"}, ""},
		"a member, and itself too": {"etcd-b", []string{"minions", "etcd-b"}, "etcd-b;;"},
		"masters, and a member":    {"masters", []string{"etcd-a"}, "masters;etcd-a;"},
	} {
		t.Run(name, func(t *testing.T) {
			s := hide(three(v1), tt.hidden)
			for _, err := range []error{rollout.RefuseUnread(s, tt.only), rollout.Refuse(s, tt.only, slices.DeleteFunc(slices.Clone(all), func(k string) bool { return k == tt.hidden }))} {
				got := ""
				var e *rollout.UnreadError
				if errors.As(err, &e) {
					got = e.Groups[0].Key + ";" + strings.Join(e.Blocked, " ") + ";" + strings.Join(e.Safe, " ")
					if !strings.Contains(err.Error(), "group demo-"+tt.hidden+": AWS refused") {
						t.Errorf("the reason is not said: %v", err)
					}
					if !strings.HasPrefix(err.Error(), "replacing machines") || strings.Contains(err.Error(), "machines of "+strings.Join(e.Blocked, ", ")+":") != (len(e.Blocked) > 0) {
						t.Errorf("%v\nblocks %v", err, e.Blocked)
					}
				}
				if got != tt.want || err != nil && e == nil {
					t.Errorf("%q, want %q (%v)", got, tt.want, err)
				}
			}
		})
	}
	if err := rollout.RefuseUnread(hide(three(v2), "etcd-b"), nil); err != nil {
		t.Errorf("nothing is to be replaced, and it is refused: %v", err)
	}
	if err := rollout.RefuseUnread(rollout.State{Unread: []rollout.Unread{{Group: "demo-minions", Key: "minions"}}}, nil); err == nil {
		t.Error("none can be read, and nothing is refused")
	}
	for name, want := range map[string]bool{"minions": true, "demo-minions": true, "masters": false, "": false} {
		if got := hide(three(v1), "minions").HasUnread(name); got != want {
			t.Errorf("%q: %v", name, got)
		}
	}
	if err := rollout.Refuse(hide(three(v1), "minions"), []string{"miners"}, nil); err == nil || !strings.Contains(err.Error(), "the groups are etcd-a, etcd-b, etcd-c, masters, minions") {
		t.Errorf("%v", err)
	}
}

// A run goes on beside a group that it has never read, and ends with its name; one that it has read is waited for as long as its patience
// lasts, and is never taken for one that is as wanted.
func TestRunBesideUnread(t *testing.T) {
	s := three(v2)
	s = of(s, "minions", func(g *rollout.Group) {
		for i := range g.Machines {
			g.Machines[i].From = v1
		}
	})
	s.Unread = []rollout.Unread{{Group: "demo-odd", Key: "odd", Why: "group demo-odd: it has no launch template"}}
	w := newWorld(t, 1, s)
	done, err := w.runner(rollout.Options{Poll: time.Second}).Run(t.Context())
	var unread *rollout.UnreadError
	if !errors.As(err, &unread) || unread.Groups[0].Key != "odd" || len(done.Refreshed) != 1 {
		t.Errorf("%+v, %v", done, err)
	}

	for name, back := range map[string]bool{"and comes back": true, "and stays away": false} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 1, three(v1))
			full, reads := clone(w.state), 0
			w.after = func() {
				switch reads++; {
				case reads == 3:
					full = clone(w.state)
					w.state = hide(w.state, "minions")
				case reads == 400 && back:
					w.state = full
				}
			}
			done, err := w.runner(rollout.Options{Poll: time.Second, Patience: 10 * time.Minute, Only: []string{"minions"}}).Run(t.Context())
			var stuck *rollout.StuckError
			switch {
			case back && (err != nil || len(done.Refreshed) != 1):
				t.Errorf("%+v, %v", done, err)
			case !back && (!errors.As(err, &stuck) || stuck.Step.Group != "demo-minions" || !strings.Contains(err.Error(), "AWS refused")):
				t.Errorf("%v", err)
			}
		})
	}
}
