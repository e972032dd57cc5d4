package autoscaling_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/awsfake"
	"github.com/hardtack/packer-plugin-hardtack/pkg/cluster/rollout"
	member "github.com/hardtack/packer-plugin-hardtack/pkg/etcd"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// Volumes that carry the members' tags do not make etcd's data durable: the machines' data is still on their own disks.
// It was so after the `stack apply` that makes the volumes, and `stack refresh` then ended all three machines of etcd.
func TestVolumesAreNotEnough(t *testing.T) {
	t.Parallel()
	for name, attached := range map[string]bool{"attached to nobody": false, "attached": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, "three")
			for _, m := range []string{"a", "b", "c"} {
				v := w.account.EC2().CreateVolume("us-west-2"+m, 20, map[string]string{role.TagCluster: "demo", role.TagEtcdMember: m})
				if !attached {
					continue
				}
				for _, i := range w.account.AutoScaling().Instances("demo-etcd-" + m) {
					if _, err := w.account.EC2().AttachVolume(v.ID, i.ID, "/dev/sdf"); err != nil {
						t.Fatal(err)
					}
				}
			}
			w.settle()
			w.publish(imageB)
			w.deploy("three")

			var refusal *rollout.Refusal
			if _, err := w.run(rollout.Options{}); !errors.As(err, &refusal) || len(refusal.Losses) != 3 {
				t.Errorf("%v", err)
			}
			if n := w.account.Calls()["autoscaling:TerminateInstanceInAutoScalingGroup"]; n != 0 {
				t.Errorf("%d machines were ended", n)
			}
		})
	}
}

// members are the cluster's members of etcd: each has a volume, which its newest machine attaches once it is free, and
// reports once a minute from there.
type members struct {
	*world
	volumes map[string]string
	reports map[string]member.Status
}

func newMembers(w *world, names ...string) *members {
	m := &members{w, map[string]string{}, map[string]member.Status{}}
	for _, name := range names {
		m.volumes[name] = w.account.EC2().CreateVolume("us-west-2"+name, 20, map[string]string{role.TagCluster: "demo", role.TagEtcdMember: name}).ID
	}
	w.cluster.Members, w.asleep = m, m.live
	return m
}

func (m *members) live() {
	for name, volume := range m.volumes {
		v, _ := m.account.EC2().Volume(volume)
		machines := m.account.AutoScaling().Instances("demo-etcd-" + name)
		for _, i := range machines {
			if v.Attachment.Instance == "" && !strings.HasPrefix(i.State, "Terminating") {
				// A machine that is pending without an instance that runs is refused, and tries again.
				_, _ = m.account.EC2().AttachVolume(volume, i.ID, "/dev/sdf")
			}
		}
		runs := slices.ContainsFunc(machines, func(i awsfake.Instance) bool {
			return i.ID == v.Attachment.Instance && i.State == awsfake.StateInService
		})
		if r := m.reports[name]; runs && m.Now().Sub(r.At) >= time.Minute {
			m.reports[name] = member.Status{At: m.Now(), Instance: v.Attachment.Instance, Volume: volume, Epoch: 1, Row: member.SRuns, Leader: 7}
		}
	}
}

func (m *members) Reports(_ context.Context, names []string) (rollout.Reports, error) {
	out := rollout.Reports{At: m.Now(), Epoch: 1, Members: map[string]member.Status{}}
	for _, name := range names {
		if r, ok := m.reports[name]; ok {
			out.Members[name] = r
		}
	}
	return out, nil
}

// Where the members themselves report from their volumes, the whole cluster is refreshed one seat at a time, and each
// volume ends up with the new machine.
func TestRefreshWithVolumes(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "three")
	m := newMembers(w, "a", "b", "c")
	w.settle()
	w.publish(imageB)
	w.deploy("three")
	done, err := w.run(rollout.Options{})
	if err != nil || len(done.Replaced) != 5 || w.least != w.all-1 {
		t.Fatalf("%+v, %v, at least %d of %d served", done, err, w.least, w.all)
	}
	w.settle()
	w.want(allNew)
	for name, volume := range m.volumes {
		v, _ := w.account.EC2().Volume(volume)
		if machines := w.account.AutoScaling().Instances("demo-etcd-" + name); len(machines) != 1 || v.Attachment.Instance != machines[0].ID {
			t.Errorf("volume of %s: %+v, machines %+v", name, v.Attachment, machines)
		}
	}
}

// An image whose machines never come up stops at the first seat, and is rolled back from there without leave to lose
// anything: the new machine never had data that are not on the volume.
func TestBadImageOfEtcd(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "three")
	newMembers(w, "a", "b", "c")
	w.settle()
	w.publish(imageB)
	w.deploy("three")
	w.broken = imageB
	if _, err := w.run(rollout.Options{Poll: time.Minute}); err == nil || !strings.Contains(err.Error(), "waiting for demo-etcd-a") {
		t.Fatal(err)
	}
	w.cluster.Wanted = map[string]int{"demo-etcd-a": 1, "demo-etcd-b": 1, "demo-etcd-c": 1}
	if _, err := w.run(rollout.Options{Only: etcd}); err != nil {
		t.Fatal(err)
	}
	w.settle()
	if got := w.fleet(); !strings.HasPrefix(got, "etcd-a 1: a; etcd-b 1: a; etcd-c 1: a") || w.least != w.all-1 {
		t.Errorf("%s, at least %d of %d served", got, w.least, w.all)
	}
}
