package operate_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/hardtack/packer-plugin-hardtack/pkg/etcd"
	"github.com/hardtack/packer-plugin-hardtack/pkg/etcd/operate"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/machine"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki/store"
)

// older makes the world a cluster from before there were records.
func (w *world) older(t *testing.T) *world {
	t.Helper()
	w.Storage = machine.StorageMachine
	w.store = store.NewDir(t.TempDir())
	w.Records = w.store
	w.put(t, pki.PublicInfo, nil)
	return w
}

// TestAdopt: the records say what the running cluster is, once; and never is there a begin without an outcome.
func TestAdopt(t *testing.T) {
	w := newWorld(t).older(t)
	want := etcd.ClusterID("demo", w.Peers)
	dry, err := w.Adopt(t.Context(), operate.AdoptOptions{DryRun: true})
	if err != nil || dry.Made || dry.ClusterID != want || len(dry.Machines) != 3 || w.get(t, etcd.OutcomeObject(1)) != "" {
		t.Fatalf("dry run: %v, %+v", err, dry)
	}
	records := w.Records
	w.Records = broken{w.Records, etcd.BeginObject(1)}
	if out, err := w.Adopt(t.Context(), operate.AdoptOptions{}); err == nil || out.Made || w.get(t, etcd.BeginObject(1)) != "" {
		t.Fatalf("cut off: %v, %+v", err, out)
	}
	w.Records = records
	out, err := w.Adopt(t.Context(), operate.AdoptOptions{ClusterID: want})
	if err != nil || !out.Made {
		t.Fatalf("%v, %+v", err, out)
	}
	again, err := w.Adopt(t.Context(), operate.AdoptOptions{})
	if err != nil || again.Made {
		t.Errorf("again: %v, %+v", err, again)
	}
	r := w.status(t)
	if r.Epoch != 1 || r.Outcome != operate.Formed || r.ClusterID != want {
		t.Errorf("%+v", r)
	}
	begin, err := etcd.Parse[etcd.Begin]([]byte(w.get(t, etcd.BeginObject(1))))
	if err != nil || etcd.ClusterID(begin.Token, begin.Members) == want {
		t.Errorf("%v: a machine that does not see the outcome would start this cluster again: %+v", err, begin)
	}
}

// broken is a store that loses its connection before it creates an object.
type broken struct {
	operate.Records
	object string
}

func (b broken) Create(ctx context.Context, object string, content []byte) error {
	if object == b.object {
		return pki.ErrUnreachable
	}
	return b.Records.Create(ctx, object, content)
}

func TestAdoptRefuses(t *testing.T) {
	for name, test := range map[string]struct {
		spoil func(t *testing.T, w *world, o *operate.AdoptOptions)
		want  string
	}{
		"one member": {func(_ *testing.T, w *world, _ *operate.AdoptOptions) { w.Peers = w.Peers[:1] }, "has 1 members: a machine without data joins at least two others"},
		"another cluster": {func(_ *testing.T, _ *world, o *operate.AdoptOptions) { o.ClusterID = 7 },
			`the running cluster is 7, and members a, b, c with the token "demo" are`},
		"another token": {func(_ *testing.T, w *world, o *operate.AdoptOptions) {
			o.Token, o.ClusterID = "other", etcd.ClusterID("demo", w.Peers)
		}, `with the token "other" are`},
		"pki create has run": {func(t *testing.T, w *world, _ *operate.AdoptOptions) {
			t.Helper()
			w.put(t, etcd.BeginObject(1), etcd.Encode(w.begin))
		}, "is there already, as hardtack pki create makes it"},
		"a formed cluster with records": {func(t *testing.T, w *world, _ *operate.AdoptOptions) {
			t.Helper()
			w.put(t, etcd.OutcomeObject(1), etcd.Encode(etcd.Outcome{Formed: &etcd.Formed{ClusterID: 9}}))
		}, "is another cluster's than"},
		"lost records": {func(t *testing.T, w *world, _ *operate.AdoptOptions) {
			t.Helper()
			w.says(t, "b", nil)
		}, "member b has reported from i-.*: put them back"},
		"used volumes": {func(t *testing.T, w *world, _ *operate.AdoptOptions) {
			t.Helper()
			w.Storage = machine.StorageVolume
			w.put(t, etcd.UsedObject(w.volumes["b"]), etcd.Encode(etcd.Used{Epoch: 4, How: etcd.ByJoin}))
		}, "of member b has data of epoch 4"},
		"nothing runs":         {func(_ *testing.T, w *world, _ *operate.AdoptOptions) { w.EC2().Terminate(w.machines["c"]) }, "member c has no machine that runs"},
		"a silent cloud":       {func(_ *testing.T, w *world, _ *operate.AdoptOptions) { w.Cloud = silent{} }, "EC2 is silent"},
		"no cloud and no word": {func(_ *testing.T, w *world, _ *operate.AdoptOptions) { w.Cloud = nil }, "give the cluster ID that a member says"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t).older(t)
			var o operate.AdoptOptions
			test.spoil(t, w, &o)
			before := w.get(t, etcd.BeginObject(1)) + w.get(t, etcd.OutcomeObject(1))
			out, err := w.Adopt(t.Context(), o)
			if err == nil || !matches(err.Error(), test.want) || w.get(t, etcd.BeginObject(1))+w.get(t, etcd.OutcomeObject(1)) != before {
				t.Errorf("%v, %+v: want %s", err, out, test.want)
			}
		})
	}
}

// TestAdoptAtOnce: two people at once make the same records, and both see that.
func TestAdoptAtOnce(t *testing.T) {
	w := newWorld(t).older(t)
	errs := make(chan error, 2)
	for range 2 {
		go func() {
			_, err := w.Adopt(t.Context(), operate.AdoptOptions{})
			errs <- err
		}()
	}
	if err := errors.Join(<-errs, <-errs); err != nil {
		t.Error(err)
	}
	if out := w.get(t, etcd.OutcomeObject(1)); !strings.Contains(out, etcd.ClusterID("demo", w.Peers).String()) {
		t.Error(out)
	}
}
