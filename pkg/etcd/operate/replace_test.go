package operate_test

import (
	"strings"
	"testing"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/awsfake"
	"github.com/hardtack/packer-plugin-hardtack/pkg/etcd/operate"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/machine"
)

func wanted(member string) operate.NewVolume {
	return operate.NewVolume{Member: member, Size: 20, IOPS: 3000, Throughput: 125}
}

// lose ends a member's machine, deletes its volume, and launches another machine.
func (w *world) lose(t *testing.T, member string) {
	t.Helper()
	w.EC2().Terminate(w.machines[member])
	if err := w.EC2().DeleteVolume(w.volumes[member]); err != nil {
		t.Fatal(err)
	}
	w.machines[member] = w.launch(t, member)
}

// TestReplace: a lost volume is followed by exactly one, however often the command is repeated.
func TestReplace(t *testing.T) {
	w := newWorld(t)
	w.Cluster.Clock = &leaping{time.Now()}
	w.lose(t, "c")
	before := len(w.EC2().Volumes())
	dry, err := w.Replace(t.Context(), wanted("c"), true)
	if err != nil || dry.Made || dry.Volume != "" || dry.Zone != zone || len(w.EC2().Volumes()) != before {
		t.Fatalf("dry run: %v, %+v", err, dry)
	}
	first, err := w.Replace(t.Context(), wanted("c"), false)
	if err != nil || !first.Made || !strings.Contains(first.Next, "joins as a learner") {
		t.Fatalf("%v, %+v", err, first)
	}
	v, _ := w.EC2().Volume(first.Volume)
	want := awsfake.VolumeSettings{Type: "gp3", Size: 20, IOPS: 3000, Throughput: 125}
	if v.VolumeSettings != want || v.Key == "" || v.Zone != zone || v.Tags["KubernetesCluster"] != "demo" || v.Tags["EtcdMember"] != "c" || v.Tags["Name"] != "demo-etcd-c" {
		t.Errorf("%+v", v)
	}
	again, err := w.Replace(t.Context(), wanted("c"), false)
	if err != nil || again.Made || again.Volume != first.Volume {
		t.Errorf("again: %v, %+v", err, again)
	}
	if err := w.EC2().DeleteVolume(first.Volume); err != nil {
		t.Fatal(err)
	}
	for range 2 { // also the one that follows it, whose token is that of no volume either
		lost := first.Volume
		if first, err = w.Replace(t.Context(), wanted("c"), false); err != nil || !first.Made || first.Volume == lost {
			t.Fatalf("lost before it had data: %v, %+v", err, first)
		}
		if again, err := w.Replace(t.Context(), wanted("c"), false); err != nil || again.Volume != first.Volume {
			t.Fatalf("after that: %v, %+v, not %s", err, again, first.Volume)
		}
		if err := w.EC2().DeleteVolume(first.Volume); err != nil {
			t.Fatal(err)
		}
	}
	if first, err = w.Replace(t.Context(), wanted("c"), false); err != nil {
		t.Fatal(err)
	}
	if _, err := w.EC2().AttachVolume(first.Volume, w.machines["c"], "/dev/sdf"); err != nil {
		t.Fatal(err)
	}
	if r, err := w.Replace(t.Context(), wanted("c"), false); err != nil || r.Made || r.Volume != first.Volume {
		t.Errorf("while its machine takes it: %v, %+v", err, r)
	}
}

// TestReplaceAtOnce: two people who both have seen no volume make one.
func TestReplaceAtOnce(t *testing.T) {
	w := newWorld(t)
	w.lose(t, "c")
	cloud := w.Cloud
	w.Cloud = &blind{Cloud: cloud}
	one, err := w.Replace(t.Context(), wanted("c"), false)
	if err != nil {
		t.Fatal(err)
	}
	w.Cloud = &blind{Cloud: cloud}
	other, err := w.Replace(t.Context(), wanted("c"), false)
	if err != nil || other.Volume != one.Volume {
		t.Errorf("%v: %+v and %+v", err, one, other)
	}
	w.Cloud = cloud
	if r := w.status(t); matches(findings(r), "2 volumes") {
		t.Error(findings(r))
	}
}

// TestReplaceUnseen: an account that shows no volume gets few.
func TestReplaceUnseen(t *testing.T) {
	w := newWorld(t)
	w.lose(t, "c")
	w.Cluster.Clock, w.Cloud = &leaping{time.Now()}, &blind{w.Cloud, 1000}
	before := len(w.EC2().Volumes())
	_, err := w.Replace(t.Context(), wanted("c"), false)
	if made := len(w.EC2().Volumes()) - before; err == nil || !matches(err.Error(), "volumes vol-.* were made for member c, .* shows none .* describe-volumes --volume-ids vol-") || made != 5 {
		t.Errorf("%v, %d volumes", err, made)
	}
}

func TestReplaceRefuses(t *testing.T) {
	for name, test := range map[string]struct {
		spoil func(w *world)
		want  string
	}{
		"a running holder": {func(*world) {}, "is held by i-.*, which is running and may be writing to it: end that machine first"},
		"a stopping holder": {func(w *world) {
			w.Cloud = told{w.Cloud, func(v *operate.Volume) { v.HolderState = "shutting-down" }}
		}, "is held by i-.*, which is shutting-down"},
		"data that are there": {func(w *world) { w.EC2().Terminate(w.machines["c"]) }, "volume vol-.* of member c is there, with its data"},
		"a terminated holder": {func(w *world) {
			w.Cloud = told{w.Cloud, func(v *operate.Volume) { v.HolderState = "terminated" }}
		}, "is there, with its data"},
		"no machine": {func(w *world) {
			w.lose(w.t, "c")
			w.EC2().Terminate(w.machines["c"])
		}, "member c has no machine"},
		"a silent cloud":  {func(w *world) { w.Cloud = silent{} }, "EC2 is silent"},
		"no such member":  {func(w *world) { w.Members = []string{"a", "b"} }, `"c" is no member of etcd: they are a, b`},
		"a local disk":    {func(w *world) { w.Storage = machine.StorageDisk }, "on a local disk: put a new disk into its machine"},
		"the machine's":   {func(w *world) { w.Storage = machine.StorageMachine }, "on its machine's own disk"},
		"an unknown zone": {func(w *world) { w.lose(w.t, "c"); w.zone = "us-west-2b" }, "is in us-west-2a, not in us-west-2b"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			test.spoil(w)
			before := len(w.EC2().Volumes())
			v := wanted("c")
			v.Zone = w.zone
			out, err := w.Replace(t.Context(), v, false)
			if err == nil || !matches(err.Error(), test.want) || len(w.EC2().Volumes()) != before {
				t.Errorf("%v, %+v: want %s", err, out, test.want)
			}
		})
	}
}

// TestReplaceWithoutQuorum makes the volume, since a restore needs it too, and does not promise that the member joins.
func TestReplaceWithoutQuorum(t *testing.T) {
	w := newWorld(t)
	w.lose(t, "b")
	w.lose(t, "c")
	for _, m := range []string{"b", "c"} {
		if out, err := w.Replace(t.Context(), wanted(m), false); err != nil || !out.Made || !strings.Contains(out.Next, "1 of the other members are healthy voters, and a quorum is 2") {
			t.Errorf("%v, %+v", err, out)
		}
	}
}
