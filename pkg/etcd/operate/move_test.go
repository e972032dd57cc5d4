package operate_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/etcd"
	"github.com/hardtack/packer-plugin-hardtack/pkg/etcd/operate"
)

// removes answers an order of removal as the leader's machine does, by its records. It answers once.
func (w *world) removes(t *testing.T, number int) {
	t.Helper()
	go func() {
		for t.Context().Err() == nil {
			text, err := w.store.Get(t.Context(), etcd.OrderObject(1, number))
			if err == nil {
				order, _ := etcd.Parse[etcd.Order](text)
				ctx := context.WithoutCancel(t.Context())
				_ = w.store.Put(ctx, etcd.RemovedObject(order.Place), etcd.Encode(etcd.Removed{Member: order.Member, Epoch: 1, Order: number}))
				_ = w.store.Put(ctx, etcd.AnswerObject(1, number), etcd.Encode(etcd.Answer{At: w.now, Instance: "i-1", Member: "a"}))
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
	}()
}

// TestMove: a member leaves its zone only while all others are well and there is a recent backup. Its volume is kept without its
// tag, and each step can be repeated.
func TestMove(t *testing.T) {
	w := newWorld(t)
	const to = "us-west-2c"
	move := func(dry bool) (string, error) {
		m, err := w.Move(t.Context(), operate.NewVolume{Member: "c", Zone: to, Size: 20, IOPS: 3000, Throughput: 125}, dry, nil)
		if m == nil {
			return "", err
		}
		return strings.Join([]string{m.Volume, m.From, map[bool]string{true: "removed"}[m.Removed], map[bool]string{true: "released"}[m.Released], map[bool]string{true: "there"}[m.There]}, " "), err
	}
	refused := func(want string) {
		t.Helper()
		if text, err := move(false); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s, %v, want %q", text, err, want)
		}
		if _, err := w.store.Get(t.Context(), etcd.OrderObject(1, 1)); err == nil {
			t.Fatal("an order was given")
		}
	}
	if _, err := w.Move(t.Context(), operate.NewVolume{Member: "x", Zone: to}, false, nil); err == nil || !strings.Contains(err.Error(), `"x" is no member`) {
		t.Error(err)
	}
	w.says(t, "b", func(s *etcd.Status) { s.At = w.now.Add(-time.Hour) })
	refused("the members b are not healthy voters")
	w.says(t, "b", func(s *etcd.Status) { s.Learner = true })
	refused("the members b are not healthy voters")
	w.backups(t, func(b *etcd.Backup) { b.At = w.now.Add(-16 * time.Minute) })
	refused("the newest backup is 16 minutes old")
	w.backups(t, func(b *etcd.Backup) { b.At = w.now.Add(-time.Minute) })

	of := w.volumes["c"]
	if text, err := move(true); err != nil || text != of+" "+zone+"   " {
		t.Errorf("dry: %q, %v", text, err)
	}
	if _, err := w.store.Get(t.Context(), etcd.OrderObject(1, 1)); err == nil {
		t.Error("a dry run gave an order")
	}
	w.removes(t, 1)
	if text, err := move(false); err != nil || text != of+" "+zone+" removed released " {
		t.Errorf("%q, %v", text, err)
	}
	v, ok := w.EC2().Volume(of)
	if _, tagged := v.Tags["EtcdMember"]; !ok || tagged || v.Tags["KubernetesCluster"] != "demo" || v.Attachment.Instance != w.machines["c"] {
		t.Errorf("the volume: %v %+v", ok, v)
	}
	list, err := w.Cloud.Volumes(t.Context())
	if err != nil || len(list) != 3 || list[2].Member != "c" || list[2].Zone != to || list[2].ID == of {
		t.Fatalf("%+v, %v", list, err)
	}
	if text, err := move(false); err != nil || text != list[2].ID+" "+to+"   there" {
		t.Errorf("again: %q, %v", text, err)
	}
	// It was interrupted before it had made the volume.
	w.Cluster.Clock = &leaping{time.Now()}
	if err := w.EC2().DeleteVolume(list[2].ID); err != nil {
		t.Fatal(err)
	}
	if text, err := move(false); err != nil || text != of+"  removed released " {
		t.Errorf("on: %q, %v", text, err)
	}
	if list, err = w.Cloud.Volumes(t.Context()); err != nil || len(list) != 3 {
		t.Errorf("%+v, %v", list, err)
	}
	if _, err := w.store.Get(t.Context(), etcd.OrderObject(1, 2)); err == nil {
		t.Error("a second order was given")
	}
	if n := w.Calls()["ec2:DeleteVolume"] + w.Calls()["ec2:DetachVolume"]; n > 0 {
		t.Error("a volume was deleted or detached")
	}
}

// TestMoveGoesOn: what was interrupted after the removal only takes the tag off.
func TestMoveGoesOn(t *testing.T) {
	w := newWorld(t)
	w.put(t, etcd.RemovedObject(w.volumes["c"]), etcd.Encode(etcd.Removed{Member: "c", Epoch: 1, Order: 1}))
	w.says(t, "b", func(s *etcd.Status) { s.At = w.now.Add(-time.Hour) }) // and that does not hinder it
	m, err := w.Move(t.Context(), operate.NewVolume{Member: "c", Zone: "us-west-2c", Size: 20, IOPS: 3000, Throughput: 125}, false, nil)
	if err != nil || !m.Released || m.Order != nil || m.Volume != w.volumes["c"] {
		t.Errorf("%+v, %v", m, err)
	}
}
