package operate

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/etcd"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/machine"
)

// sight is what is known about the members of a formed epoch that is to be left.
type sight struct {
	*Cluster
	off   []string
	epoch epoch
	now   time.Time

	said     map[string]*etcd.Status // the reports of that epoch or a later one
	volumes  []Volume
	used     map[string]bool // the volumes that have or had data
	machines []Machine
	silent   error // why the cloud says nothing
}

// look reads the members' reports, and asks the cloud. A cloud that does not answer leaves the members' own words.
func (s *sight) look(ctx context.Context) error {
	s.said, s.used = map[string]*etcd.Status{}, map[string]bool{}
	s.volumes, s.machines, s.silent = s.Cluster.look(ctx)
	names := s.names(s.volumes)
	for name := range s.epoch.formed().Members {
		names = append(names, name)
	}
	for _, m := range s.machines { // of a member that has joined since, and that nothing else may name
		names = append(names, m.Member)
	}
	for _, name := range names {
		status, err := read[etcd.Status](ctx, s.Records, etcd.StatusObject(name))
		if err != nil {
			return err
		}
		if status != nil && status.Epoch >= s.epoch.number {
			s.said[name] = status
		}
	}
	for _, v := range s.volumes {
		used, err := read[etcd.Used](ctx, s.Records, etcd.UsedObject(v.ID))
		if err != nil {
			return err
		}
		s.used[v.ID] = used != nil
	}
	return nil
}

// voters are the voters of the epoch as far as is known: those it was formed with, and those who have reported to be one
// since. Those that the document does not name may have been removed: they are apart.
func (s *sight) voters() (voters, gone []string) {
	names := map[string]bool{}
	for name := range s.epoch.formed().Members {
		names[name] = true
	}
	for name, status := range s.said {
		if status.Epoch == s.epoch.number && status.MemberID != 0 && !status.Learner { // zero is a machine that waits
			names[name] = true
		}
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if slices.Contains(s.Members, name) {
			voters = append(voters, name)
		} else {
			gone = append(gone, name)
		}
	}
	return voters, gone
}

// declared refuses what cannot be: a member that is said to be off, and is none or has just reported.
func (s *sight) declared(known []string) error {
	for _, name := range s.off {
		if !slices.Contains(known, name) {
			return fmt.Errorf("%q is no voter of epoch %d: they are %s", name, s.epoch.number, strings.Join(known, ", "))
		}
		if s.fresh(name) {
			return fmt.Errorf("member %s is not off: it has reported %s ago from %s", name, s.age(name), s.said[name].Instance)
		}
	}
	return nil
}

func (s *sight) age(name string) time.Duration {
	return s.now.Sub(s.said[name].At).Round(time.Second)
}

// fresh reports whether a member's machine has just written its report, so that it also reads the store. One from the
// future proves nothing: it stays new when its machine has ended.
func (s *sight) fresh(name string) bool {
	return s.said[name] != nil && s.age(name) <= fresh && s.age(name) >= -fresh
}

func (s *sight) leavers(names []string) []Leaver {
	list := []Leaver{}
	for _, name := range names {
		list = append(list, s.leaver(name))
	}
	return list
}

// leaver says how a member leaves the epoch.
func (s *sight) leaver(name string) Leaver {
	is := func(how, why string, args ...any) Leaver {
		return Leaver{Member: name, How: how, Why: fmt.Sprintf(why, args...)}
	}
	switch {
	case slices.Contains(s.off, name):
		return is(Off, "the operator says that it is switched off")
	case s.fresh(name):
		return is(Sees, "it has reported %s ago", s.age(name))
	case s.silent != nil:
		return is(Blind, "whether a machine has its data is not known: %s", s.silent)
	case s.Cloud == nil || s.Storage == machine.StorageDisk && len(s.has(name)) > 0:
		return is(Blind, "its data are on its machine's disk, and %s", s.last(name))
	}
	for _, v := range s.volumes {
		if v.Member == name && v.Held() && s.used[v.ID] {
			return is(Blind, "volume %s is held by %s, which is %s, and %s", v.ID, v.Holder, v.HolderState, s.last(name))
		}
	}
	for _, m := range s.has(name) {
		if s.runsOn(name, m) {
			return is(Blind, "machine %s is %s, and %s", m.ID, m.State, s.last(name))
		}
	}
	return is(Gone, "no machine that runs has its data")
}

// runsOn reports whether a machine may have the data that a member has reported, though no volume in the list shows it: they
// are on its own disk, or the volume's tags were taken off while the machine had it.
func (s *sight) runsOn(name string, m Machine) bool {
	said := s.said[name]
	if s.Storage == machine.StorageMachine {
		// Outside of EC2's own metadata a machine reports itself by another name.
		return said == nil || said.Instance == m.ID || !strings.HasPrefix(said.Instance, "i-")
	}
	return said != nil && said.Instance == m.ID && said.MemberID != 0 && !s.known(said.Volume)
}

// has are the machines of a member that have not ended.
func (s *sight) has(name string) (list []Machine) {
	for _, m := range s.machines {
		if m.Member == name {
			list = append(list, m)
		}
	}
	return list
}

// known reports whether the cloud shows a volume.
func (s *sight) known(volume string) bool {
	return slices.ContainsFunc(s.volumes, func(v Volume) bool { return v.ID == volume })
}

// last says when a member has reported.
func (s *sight) last(name string) string {
	if s.said[name] == nil {
		return "it has never reported in this epoch"
	}
	return fmt.Sprintf("its last report is %s old", s.age(name))
}

// serving reports whether a quorum runs by its own word.
func (s *sight) serving(voters []string) bool {
	n := 0
	for _, name := range voters {
		if status := s.said[name]; s.fresh(name) && status.Epoch == s.epoch.number && status.Leader != 0 {
			n++
		}
	}
	return n >= etcd.Quorum(len(voters))
}

// loss is what the backup does not have.
func (s *sight) loss(b Object) Loss {
	l := Loss{Since: b.Taken, Epoch: s.epoch.number}
	for _, status := range s.said {
		if status.Epoch != s.epoch.number || status.MemberID == 0 {
			continue
		}
		if status.At.After(l.Until) {
			l.Until = status.At
		}
		l.Revision = max(l.Revision, status.Store.Revision)
	}
	if b.Epoch == s.epoch.number {
		l.AtLeast = max(0, l.Revision-b.Revision)
	}
	return l
}
