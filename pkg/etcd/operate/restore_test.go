package operate_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/awsfake"
	"github.com/hardtack/packer-plugin-hardtack/pkg/etcd"
	"github.com/hardtack/packer-plugin-hardtack/pkg/etcd/operate"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/machine"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki"
)

// place is a place of backups in memory.
type place struct {
	objects []operate.Object
	content map[string][]byte
}

func (p *place) String() string { return "the place" }

func (p *place) List(context.Context) ([]operate.Object, error) { return slices.Clone(p.objects), nil }

func (p *place) Open(_ context.Context, name string) (io.ReadCloser, error) {
	content, ok := p.content[name]
	if !ok {
		return nil, errors.New(name + " is gone")
	}
	return io.NopCloser(bytes.NewReader(content)), nil
}

// backup takes a backup of an epoch of the world so long ago.
func (w *world) backup(name string, epoch int, ago time.Duration, revision int64) operate.Object {
	content := []byte("the content of " + name)
	sum := sha256.Sum256(content)
	o := operate.Object{Name: name, Epoch: epoch, Member: "a", Taken: w.now.Add(-ago), Revision: revision, Keys: 3, Size: int64(len(content)),
		SHA256: hex.EncodeToString(sum[:]), ClusterID: etcd.ClusterID(w.begin.Token, w.begin.Members), Version: "3.6.14"}
	w.place.objects, w.place.content[name] = append(w.place.objects, o), content
	return o
}

// loseMost ends all machines and deletes the volumes of b and c.
func (w *world) loseMost(t *testing.T) {
	t.Helper()
	for _, m := range w.Members {
		w.says(t, m, func(s *etcd.Status) { s.At = w.now.Add(-7 * time.Minute) })
	}
	w.lose(t, "b")
	w.lose(t, "c")
	w.EC2().Terminate(w.machines["a"])
	w.machines["a"] = w.launch(t, "a")
}

func (w *world) lost(t *testing.T) *world {
	t.Helper()
	w.loseMost(t)
	w.backup("1/old.db", 1, 40*time.Minute, 18000)
	w.backup("1/new.db", 1, 10*time.Minute, 18900)
	return w
}

// accept is what an operator accepts who has read what would be lost.
func (w *world) accept(ago time.Duration) operate.RestoreOptions {
	return operate.RestoreOptions{From: operate.Latest, LoseSince: w.now.Add(-ago)}
}

func (w *world) get(t *testing.T, object string) string {
	t.Helper()
	data, err := w.store.Get(t.Context(), object)
	if err != nil && !errors.Is(err, pki.ErrNotFound) {
		t.Fatal(err)
	}
	return string(data)
}

// TestRestore: a dry run says what is lost and does nothing; then the epoch begins once.
func TestRestore(t *testing.T) {
	w := newWorld(t).lost(t)
	dry, err := w.Restore(t.Context(), operate.RestoreOptions{From: operate.Latest, DryRun: true})
	if err != nil || dry.Begun || dry.Epoch != 2 || dry.Backup.Name != "1/new.db" || w.get(t, etcd.BeginObject(2)) != "" {
		t.Fatalf("dry run: %v, %+v", err, dry)
	}
	if l := dry.Loss; !l.Since.Equal(w.now.Add(-10*time.Minute)) || !l.Until.Equal(w.now.Add(-7*time.Minute)) || l.AtLeast != 100 || l.Revision != 19000 {
		t.Errorf("loss %+v", l)
	}
	for _, l := range dry.Voters {
		if l.How != operate.Gone {
			t.Errorf("%+v", l)
		}
	}
	r, err := w.Restore(t.Context(), w.accept(time.Hour))
	if err != nil || !r.Begun || r.Formed || r.Epoch != 2 || r.Serving || r.Newer != "" {
		t.Fatalf("%v, %+v", err, r)
	}
	b, err := etcd.Parse[etcd.Begin]([]byte(w.get(t, etcd.BeginObject(2))))
	if err != nil || b.Token == w.begin.Token || len(b.Token) != 32 || !slices.Equal(b.Members, w.begin.Members) || !slices.Equal(b.Previous, w.Members) || len(b.Off) > 0 {
		t.Errorf("%v, %+v", err, b)
	}
	if want := (etcd.Restore{Object: "1/new.db", SHA256: r.Backup.SHA256, Revision: 18900}); *b.Restore != want {
		t.Errorf("%+v, want %+v", b.Restore, want)
	}
	again, err := w.Restore(t.Context(), w.accept(time.Hour))
	if err != nil || again.Begun || again.Epoch != 2 || w.get(t, etcd.BeginObject(3)) != "" {
		t.Errorf("again: %v, %+v", err, again)
	}
	w.put(t, etcd.OutcomeObject(2), etcd.Encode(etcd.Outcome{Formed: &etcd.Formed{ClusterID: 5, Members: map[string]etcd.ID{"a": 1, "b": 2, "c": 3}}}))
	again, err = w.Restore(t.Context(), w.accept(time.Hour))
	if err != nil || again.Begun || !again.Formed || again.Epoch != 2 || w.get(t, etcd.BeginObject(3)) != "" {
		t.Errorf("once it is formed: %v, %+v", err, again)
	}
	o := w.accept(time.Hour)
	o.Again = true
	if again, err = w.Restore(t.Context(), o); err != nil || !again.Begun || again.Epoch != 3 {
		t.Errorf("once more: %v, %+v", err, again)
	}
}

// TestRestoreRefuses: each time nothing is written.
func TestRestoreRefuses(t *testing.T) {
	hour := time.Hour
	for name, test := range map[string]struct {
		spoil func(t *testing.T, w *world, o *operate.RestoreOptions)
		want  string
	}{
		"without acceptance": {func(_ *testing.T, _ *world, o *operate.RestoreOptions) { o.LoseSince = time.Time{} },
			"would be lost, and that is not accepted: --lose-writes-since 20"},
		"more is lost than accepted": {func(_ *testing.T, w *world, o *operate.RestoreOptions) { o.LoseSince = w.now.Add(-9 * time.Minute) },
			"the loss begins at .*, before .*, since when it is accepted"},
		"more is lost by an older one": {func(_ *testing.T, w *world, o *operate.RestoreOptions) {
			o.From, o.LoseSince = "1/old.db", w.now.Add(-20*time.Minute)
		}, "choose a later backup, or accept it"},
		"a time in the future": {func(_ *testing.T, w *world, o *operate.RestoreOptions) { o.LoseSince = w.now.Add(hour) }, "is in the future: now is"},
		"no place":             {func(_ *testing.T, w *world, _ *operate.RestoreOptions) { w.Backups = nil }, "names no place for backups"},
		"no such backup":       {func(_ *testing.T, _ *world, o *operate.RestoreOptions) { o.From = "1/none.db" }, `no backup "1/none.db"`},
		"no backup at all":     {func(_ *testing.T, w *world, _ *operate.RestoreOptions) { w.place.objects = nil }, "has no backup of a cluster that was formed"},
		"another cluster's": {func(_ *testing.T, w *world, o *operate.RestoreOptions) {
			o.From = "1/new.db"
			w.place.objects[1].ClusterID++
		}, "is not of this cluster: it is of cluster .*, and epoch 1 is cluster"},
		"only another cluster's": {func(_ *testing.T, w *world, _ *operate.RestoreOptions) {
			for i := range w.place.objects {
				w.place.objects[i].ClusterID++
			}
		}, "has no backup of a cluster that was formed"},
		"of an epoch that never was": {func(_ *testing.T, w *world, o *operate.RestoreOptions) {
			o.From = "1/new.db"
			w.place.objects[1].Epoch = 4
		}, "it is of epoch 4, and the store has 1"},
		"of the future": {func(_ *testing.T, w *world, _ *operate.RestoreOptions) {
			w.place.objects[1].Taken = w.now.Add(hour)
		}, "set this computer's clock right"},
		"damaged": {func(_ *testing.T, w *world, _ *operate.RestoreOptions) { w.place.content["1/new.db"][3] ^= 1 }, "is damaged: it has 23 bytes"},
		"cut off": {func(_ *testing.T, w *world, _ *operate.RestoreOptions) {
			w.place.content["1/new.db"] = w.place.content["1/new.db"][:9]
		}, "is damaged: it has 9 bytes"},
		"gone": {func(_ *testing.T, w *world, _ *operate.RestoreOptions) { delete(w.place.content, "1/new.db") }, "1/new.db is gone"},
		"a blind quorum": {func(t *testing.T, w *world, _ *operate.RestoreOptions) {
			t.Helper()
			w.hold(t, "a")
			w.hold(t, "b")
		}, `(?s)a quorum of epoch 1 may still run .*a: volume vol-.* is held by i-.*, which is running, and its last report is 7m0s old.*b: volume.*--off MEMBER`},
		"a blind quorum whose clocks are ahead": {func(t *testing.T, w *world, _ *operate.RestoreOptions) {
			t.Helper()
			for _, m := range []string{"a", "b"} {
				w.hold(t, m)
				w.says(t, m, func(s *etcd.Status) { s.At = w.now.Add(hour) })
			}
		}, "a quorum of epoch 1 may still run"},
		"tags taken off under it": {func(t *testing.T, w *world, _ *operate.RestoreOptions) {
			t.Helper()
			for _, m := range []string{"a", "b"} {
				w.says(t, m, func(s *etcd.Status) { s.At, s.Volume = w.now.Add(-hour), "vol-untagged" })
			}
		}, `(?s)a: machine i-.* is running, and its last report is 1h0m0s old.*b: machine`},
		"a silent cloud": {func(_ *testing.T, w *world, _ *operate.RestoreOptions) { w.Cloud = silent{} }, "whether a machine has its data is not known: EC2 is silent"},
		"no cloud":       {func(_ *testing.T, w *world, _ *operate.RestoreOptions) { w.Cloud = nil }, "its data are on its machine's disk, and its last report is 7m0s old"},
		"machines' own disks": {func(t *testing.T, w *world, _ *operate.RestoreOptions) {
			t.Helper()
			w.Storage = machine.StorageMachine
			for _, m := range []string{"a", "b"} {
				w.says(t, m, func(s *etcd.Status) { s.At, s.Volume = w.now.Add(-hour), "" })
			}
		}, "a: machine i-"},
		"off, and reports": {func(t *testing.T, w *world, o *operate.RestoreOptions) {
			t.Helper()
			w.says(t, "a", nil)
			o.Off = []string{"a"}
		}, "member a is not off: it has reported 20s ago"},
		"off, and no member": {func(_ *testing.T, _ *world, o *operate.RestoreOptions) { o.Off = []string{"z"} }, `"z" is no voter of epoch 1: they are a, b, c`},
		"a voter that left the document": {func(t *testing.T, w *world, _ *operate.RestoreOptions) {
			t.Helper()
			w.hold(t, "a")
			w.Members = []string{"b", "c"}
			w.Peers = w.Peers[1:]
		}, "member a of epoch 1 is not in the document, and volume .* end its machine, or say"},
		"a voter that joined since": {func(t *testing.T, w *world, _ *operate.RestoreOptions) {
			t.Helper()
			w.says(t, "d", func(s *etcd.Status) { s.At, s.Instance = w.now.Add(-hour), w.launch(t, "d") })
		}, "member d of epoch 1 is not in the document, and machine"},
		"another document": {func(_ *testing.T, w *world, _ *operate.RestoreOptions) { w.Members = []string{"x"} }, "names none of the members of epoch 1, which are a, b, c"},
		"another one under way": {func(t *testing.T, w *world, o *operate.RestoreOptions) {
			t.Helper()
			o.From = "1/old.db"
			if _, err := w.Restore(t.Context(), *o); err != nil {
				t.Fatal(err)
			}
			o.From = operate.Latest
		}, "epoch 2 is being restored from 1/old.db: .*--again abandons it"},
		"no right to write": {func(_ *testing.T, w *world, _ *operate.RestoreOptions) {
			w.SetFaults(awsfake.FaultFunc(func(c awsfake.Call) (f awsfake.Fault) {
				if c.Action == "PutParameter" {
					f.Refuse = &awsfake.Error{Status: 400, Code: "AccessDeniedException", Message: "no"}
				}
				return f
			}))
		}, "beginning epoch 2: .*no permission"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t).lost(t)
			o := w.accept(hour)
			test.spoil(t, w, &o)
			before := w.get(t, etcd.BeginObject(2))
			out, err := w.Restore(t.Context(), o)
			if err == nil || !matches(err.Error(), test.want) || w.get(t, etcd.BeginObject(2)) != before || w.get(t, etcd.BeginObject(3)) != "" {
				t.Errorf("%v, %+v: want %s", err, out, test.want)
			}
		})
	}
}

// hold has a member's old volume, with its data, at its machine.
func (w *world) hold(t *testing.T, member string) {
	t.Helper()
	if _, ok := w.EC2().Volume(w.volumes[member]); !ok {
		w.volumes[member] = w.volume(t, member)
		w.put(t, etcd.UsedObject(w.volumes[member]), etcd.Encode(etcd.Used{Epoch: 1, How: etcd.ByStart}))
	}
	if _, err := w.EC2().AttachVolume(w.volumes[member], w.machines[member], "/dev/sdf"); err != nil {
		t.Fatal(err)
	}
}

// TestRestoreLeaves: who may still run, and will see the new epoch or is off, is no hindrance.
func TestRestoreLeaves(t *testing.T) {
	for name, test := range map[string]struct {
		live    func(t *testing.T, w *world, o *operate.RestoreOptions)
		how     []string
		serving bool
	}{
		"a quorum that reports": {func(t *testing.T, w *world, _ *operate.RestoreOptions) {
			t.Helper()
			for _, m := range []string{"a", "b"} {
				w.hold(t, m)
				w.says(t, m, nil)
			}
		}, []string{operate.Sees, operate.Sees, operate.Gone}, true},
		"survivors without a leader": {func(t *testing.T, w *world, _ *operate.RestoreOptions) {
			t.Helper()
			for _, m := range []string{"a", "b"} {
				w.hold(t, m)
				w.says(t, m, func(s *etcd.Status) { s.Leader = 0 })
			}
		}, []string{operate.Sees, operate.Sees, operate.Gone}, false},
		"one that is blind": {func(t *testing.T, w *world, _ *operate.RestoreOptions) {
			t.Helper()
			w.hold(t, "a")
		}, []string{operate.Blind, operate.Gone, operate.Gone}, false},
		"a zone that is off": {func(t *testing.T, w *world, o *operate.RestoreOptions) {
			t.Helper()
			w.hold(t, "a")
			w.hold(t, "b")
			o.Off = []string{"b"}
		}, []string{operate.Blind, operate.Off, operate.Gone}, false},
		"machines' own disks, of machines that ended": {func(t *testing.T, w *world, _ *operate.RestoreOptions) {
			t.Helper()
			w.Storage = machine.StorageMachine
			for _, m := range w.Members {
				w.says(t, m, func(s *etcd.Status) { s.At, s.Instance, s.Volume = w.now.Add(-time.Hour), "i-ended", "" })
			}
		}, []string{operate.Gone, operate.Gone, operate.Gone}, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t).lost(t)
			o := w.accept(time.Hour)
			test.live(t, w, &o)
			r, err := w.Restore(t.Context(), o)
			if err != nil || !r.Begun || r.Serving != test.serving {
				t.Fatalf("%v, %+v", err, r)
			}
			var how []string
			for _, l := range r.Voters {
				how = append(how, l.How)
			}
			if !slices.Equal(how, test.how) {
				t.Errorf("%v, want %v", how, test.how)
			}
			b, err := etcd.Parse[etcd.Begin]([]byte(w.get(t, etcd.BeginObject(2))))
			if err != nil || !slices.Equal(b.Off, o.Off) {
				t.Errorf("%v, %+v", err, b)
			}
		})
	}
}

// TestRestoreInstead abandons a restore from another backup, also where a member's machine always begins the next epoch
// from that one first.
func TestRestoreInstead(t *testing.T) {
	for _, lost := range []int{0, 1, 3} {
		t.Run(fmt.Sprint(lost, " races lost"), func(t *testing.T) {
			w := newWorld(t).lost(t)
			o := w.accept(time.Hour)
			o.From = "1/old.db"
			if _, err := w.Restore(t.Context(), o); err != nil {
				t.Fatal(err)
			}
			w.Records = &racer{Records: w.Records, lost: lost}
			o.From, o.Again = "1/new.db", true
			r, err := w.Restore(t.Context(), o)
			if err != nil || !r.Begun || r.Epoch != 3+lost {
				t.Fatalf("%v, %+v", err, r)
			}
			for epoch := 2; epoch < r.Epoch; epoch++ {
				if !strings.Contains(w.get(t, etcd.OutcomeObject(epoch)), "the operator restores 1/new.db") {
					t.Errorf("epoch %d: %s", epoch, w.get(t, etcd.OutcomeObject(epoch)))
				}
			}
			b, err := etcd.Parse[etcd.Begin]([]byte(w.get(t, etcd.BeginObject(r.Epoch))))
			if err != nil || b.Restore.Object != "1/new.db" || !slices.Equal(b.Previous, w.Members) {
				t.Errorf("%v, %+v", err, b)
			}
		})
	}
}

// racer begins the epoch after an abandoned one before the operator can, as a member's machine does.
type racer struct {
	operate.Records
	lost int
}

func (r *racer) Create(ctx context.Context, object string, content []byte) error {
	if strings.HasSuffix(object, "/begin") && r.lost > 0 {
		r.lost--
		var n int
		if _, err := fmt.Sscanf(object, etcd.Records+"epochs/%d/begin", &n); err != nil {
			return err
		}
		data, err := r.Get(ctx, etcd.BeginObject(n-1))
		if err != nil {
			return err
		}
		before, err := etcd.Parse[etcd.Begin](data)
		if err != nil {
			return err
		}
		if err := r.Records.Create(ctx, object, etcd.Encode(before.Next(etcd.NewToken()))); err != nil {
			return err
		}
	}
	return r.Records.Create(ctx, object, content)
}

// TestRestoreForOthers: an epoch that began for other members than the document's may never form, and is abandoned for one
// from the same backup.
func TestRestoreForOthers(t *testing.T) {
	w := newWorld(t).lost(t)
	o := w.accept(time.Hour)
	o.From = "1/old.db"
	if _, err := w.Restore(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	begin, err := etcd.Parse[etcd.Begin]([]byte(w.get(t, etcd.BeginObject(2))))
	if err != nil {
		t.Fatal(err)
	}
	begin.Members = begin.Members[2:]
	if err := w.store.Put(t.Context(), etcd.BeginObject(2), etcd.Encode(begin)); err != nil {
		t.Fatal(err)
	}
	if r, err := w.Restore(t.Context(), o); err == nil || !matches(err.Error(), "epoch 2 is being restored from 1/old.db for the members c, and those of the document are a, b, c: .* --again abandons it") {
		t.Errorf("without --again: %v, %+v", err, r)
	}
	o.Again = true
	r, err := w.Restore(t.Context(), o)
	if err != nil || !r.Begun || r.Epoch != 3 {
		t.Fatalf("%v, %+v", err, r)
	}
	if r, err = w.Restore(t.Context(), o); err != nil || r.Begun || r.Epoch != 3 {
		t.Errorf("and once more: %v, %+v", err, r)
	}
}

// TestRestoreFormsMeanwhile: what forms while it is to be abandoned is left as a formed epoch, and loses nothing silently.
func TestRestoreFormsMeanwhile(t *testing.T) {
	w := newWorld(t).lost(t)
	o := w.accept(time.Hour)
	o.From = "1/old.db"
	if _, err := w.Restore(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	formed := etcd.Outcome{Formed: &etcd.Formed{ClusterID: 5, Members: map[string]etcd.ID{"a": 1, "b": 2, "c": 3}}}
	w.Records = forms{w.Records, etcd.Encode(formed)}
	o.From, o.Again = "1/new.db", true
	r, err := w.Restore(t.Context(), o)
	if err != nil || !r.Begun || r.Epoch != 3 || r.Loss.Epoch != 2 {
		t.Fatalf("%v, %+v", err, r)
	}
}

// forms is a store in which an epoch forms just before the operator would abandon it.
type forms struct {
	operate.Records
	outcome []byte
}

func (f forms) Create(ctx context.Context, object string, content []byte) error {
	if strings.HasSuffix(object, "/outcome") {
		content = f.outcome
		if err := f.Records.Create(ctx, object, content); err != nil {
			return err
		}
	}
	return f.Records.Create(ctx, object, content)
}

// TestFollow tells of each step once, follows an abandoned start, and ends with the formed epoch.
func TestFollow(t *testing.T) {
	w := newWorld(t).lost(t)
	r, err := w.Restore(t.Context(), w.accept(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	next := etcd.Begin{Token: "t", Members: w.begin.Members, Restore: &etcd.Restore{Object: r.Backup.Name, SHA256: r.Backup.SHA256}}
	steps := []func(){
		func() {
			w.put(t, etcd.StartedObject(2, "a"), etcd.Encode(etcd.Started{Instance: "i", Attempt: "x"}))
		},
		func() { w.put(t, etcd.OutcomeObject(2), etcd.Encode(etcd.Outcome{Abandoned: "a has lost its data"})) },
		func() { w.put(t, etcd.BeginObject(3), etcd.Encode(next)) },
		func() { w.says(t, "b", func(s *etcd.Status) { s.Epoch = 3 }) },
		func() {
			w.put(t, etcd.OutcomeObject(3), etcd.Encode(etcd.Outcome{Formed: &etcd.Formed{ClusterID: 5}}))
		},
	}
	w.Cluster.Clock = &steppedClock{steps: steps}
	var story []string
	p, err := w.Follow(t.Context(), r.Backup, func(p operate.Progress) {
		story = append(story, fmt.Sprint(p.Epoch, p.Outcome, p.Started, p.Reported))
	})
	want := []string{"2[] []", "2[a] []", "2abandoned[a] []", "3[] []", "3[] [b]", "3formed[] [b]"}
	if err != nil || p.Outcome != operate.Formed || !slices.Equal(story, want) {
		t.Errorf("%v, %+v\n%q, want\n%q", err, p, story, want)
	}
	r.Backup.Name = "1/other.db"
	if _, err := w.Follow(t.Context(), r.Backup, func(operate.Progress) {}); err == nil || !strings.Contains(err.Error(), "somebody else restores another backup") {
		t.Error(err)
	}
}

// steppedClock takes a step of a story in each sleep, and none twice.
type steppedClock struct{ steps []func() }

func (c *steppedClock) Now() time.Time { return time.Now() }

func (c *steppedClock) Sleep(ctx context.Context, _ time.Duration) error {
	if len(c.steps) == 0 {
		return errors.New("nothing happens any more")
	}
	c.steps[0]()
	c.steps = c.steps[1:]
	return ctx.Err()
}
