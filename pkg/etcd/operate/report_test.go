package operate_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/awsfake"
	"github.com/hardtack/packer-plugin-hardtack/pkg/base/clock"
	"github.com/hardtack/packer-plugin-hardtack/pkg/etcd"
	"github.com/hardtack/packer-plugin-hardtack/pkg/etcd/operate"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/machine"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki/store"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

func TestHealthy(t *testing.T) {
	r := newWorld(t).status(t)
	if !r.Healthy || len(r.Findings) > 0 || r.Epoch != 1 || r.Outcome != operate.Formed || r.Voters != 3 || r.Quorum != 2 || r.Backup == nil || r.Backup.Revision != 18900 {
		t.Errorf("%+v\n%s", r, findings(r))
	}
	for i, m := range r.Members {
		want := []string{operate.Leader, operate.Voter, operate.Voter}[i]
		if m.Role != want || !m.Healthy || m.Lag != 0 || m.Seconds < 20 || len(m.Volumes) != 1 || len(m.Machines) != 1 || m.Volumes[0].Holder != m.Machines[0].ID || !m.Volumes[0].Held() {
			t.Errorf("%+v", m)
		}
	}
}

// TestFindings: one thing is wrong at a time, and the report says which, with a next step, and is not healthy.
func TestFindings(t *testing.T) {
	for name, test := range map[string]struct {
		spoil func(w *world)
		want  string
		// voters are the healthy ones that are left.
		voters int
	}{
		"no volume": {func(w *world) {
			w.EC2().Terminate(w.machines["c"])
			w.machines["c"] = w.launch(w.t, "c")
			if err := w.EC2().DeleteVolume(w.volumes["c"]); err != nil {
				w.t.Fatal(err)
			}
		}, "c: no volume has its tags -> .*hardtack etcd replace c", 2},
		"two volumes":      {func(w *world) { w.volume(w.t, "c") }, "c: 2 volumes have its tags: vol-", 2},
		"a free volume":    {func(w *world) { w.EC2().Terminate(w.machines["c"]) }, "c: volume vol-.* is available: no machine has it", 2},
		"no machine":       {func(w *world) { w.EC2().Terminate(w.machines["c"]) }, "c: it has no machine", 2},
		"another's volume": {func(w *world) { w.EC2().CreateVolume(zone, 8, tags("z")) }, "z: no member of the document, but volume vol-", 3},
		"a stuck holder": {func(w *world) {
			w.Cloud = told{w.Cloud, func(v *operate.Volume) {
				if v.Member == "c" {
					v.HolderState = "shutting-down"
				}
			}}
		}, "c: volume vol-.* is held by i-.*, which is shutting-down -> it becomes free", 2},
		"an old report": {func(w *world) {
			w.says(w.t, "c", func(s *etcd.Status) { s.At = w.now.Add(-12 * time.Minute) })
		}, "c: its last report is 12m0s old, from i-", 2},
		"another row":     {func(w *world) { w.says(w.t, "c", func(s *etcd.Status) { s.Row = etcd.E4Epoch }) }, `waits \(E4\): the data are of an earlier epoch`, 2},
		"an older epoch":  {func(w *world) { w.put(w.t, etcd.BeginObject(2), etcd.Encode(w.begin)) }, "a: it is in epoch 1, and the store's newest is 2", 0},
		"another cluster": {func(w *world) { w.says(w.t, "c", func(s *etcd.Status) { s.ClusterID = 7 }) }, "c: it is in cluster 7, and epoch 1 is cluster ", 2},
		"another's disk":  {func(w *world) { w.says(w.t, "c", func(s *etcd.Status) { s.Volume = "vol-1" }) }, "c: it runs on vol-1, and the volume with its tags is vol-", 2},
		"a learner":       {func(w *world) { w.says(w.t, "c", func(s *etcd.Status) { s.Learner = true }) }, "c: it is a learner", 2},
		"no leader":       {func(w *world) { w.says(w.t, "c", func(s *etcd.Status) { s.Leader = 0 }) }, "c: it knows no leader", 2},
		"far behind":      {func(w *world) { w.says(w.t, "c", func(s *etcd.Status) { s.Store.RaftIndex = 14999 }) }, "c: it is 5001 entries behind", 2},
		"no space": {func(w *world) {
			w.says(w.t, "c", func(s *etcd.Status) { s.Store.Alarms = []string{"NOSPACE"} })
		}, "c: alarm NOSPACE -> .*quota", 2},
		"corrupt": {func(w *world) {
			w.says(w.t, "c", func(s *etcd.Status) { s.Store.Alarms = []string{"CORRUPT"} })
		}, "c: alarm CORRUPT -> .*hardtack etcd replace c", 2},
		"no old backup": {func(w *world) {
			w.backups(w.t, func(b *etcd.Backup) { b.At = w.now.Add(-61 * time.Minute) })
		}, ": the newest backup is 1h1m0s old", 3},
		"a silent cloud":   {func(w *world) { w.Cloud = silent{} }, ": EC2 is silent -> volumes and machines are not checked", 3},
		"no member at all": {func(w *world) { w.Members = []string{"d", "e", "f"} }, "d: it has never reported", 0},
		"no quorum": {func(w *world) {
			for _, m := range []string{"b", "c"} {
				w.says(w.t, m, func(s *etcd.Status) { s.At = w.now.Add(-time.Hour) })
			}
		}, ": 1 of 3 members are healthy voters, and a quorum is 2", 1},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			test.spoil(w)
			r := w.status(t)
			if !matches(findings(r), test.want) || r.Healthy || r.Voters != test.voters {
				t.Errorf("healthy %v, %d voters, want %d and %q in\n%s", r.Healthy, r.Voters, test.voters, test.want, findings(r))
			}
			for _, f := range r.Findings {
				if f.Next == "" {
					t.Errorf("%s: no next step", f.What)
				}
			}
		})
	}
}

// TestLag: a report is not behind one that was made later.
func TestLag(t *testing.T) {
	w := newWorld(t)
	w.says(t, "a", func(s *etcd.Status) { s.At, s.Store.RaftIndex = w.now, 90000 })
	if r := w.status(t); !r.Healthy || r.Members[1].Lag != 0 {
		t.Errorf("lag %d\n%s", r.Members[1].Lag, findings(r))
	}
}

// TestWarnings leave a cluster healthy.
func TestWarnings(t *testing.T) {
	for want, change := range map[string]func(w *world, b *etcd.Backup){
		"no member reports a backup":          nil,
		"was not restored for a trial":        func(w *world, b *etcd.Backup) { b.Verified = w.now.Add(-26 * time.Hour) },
		"not restored for a trial within a d": func(_ *world, b *etcd.Backup) { b.Verified = time.Time{} },
	} {
		w := newWorld(t)
		if change == nil {
			for _, m := range w.Members {
				w.says(t, m, func(s *etcd.Status) { s.Backup = nil })
			}
		} else {
			w.backups(t, func(b *etcd.Backup) { change(w, b) })
		}
		if r := w.status(t); !r.Healthy || len(r.Findings) != 1 || !r.Findings[0].Warning || !strings.Contains(r.Findings[0].What, want) {
			t.Errorf("%s: healthy %v\n%s", want, r.Healthy, findings(r))
		}
	}
}

// TestFirstStart follows the records of a cluster's first epoch, in a directory: no cloud.
func TestFirstStart(t *testing.T) {
	s := store.NewDir(t.TempDir())
	c := operate.Cluster{Name: "demo", Members: []string{"a"}, Storage: machine.StorageDisk, Records: s, Clock: clock.System{}}
	step := func(want, outcome string, epoch int) {
		t.Helper()
		r, err := c.Status(t.Context())
		if err != nil || r.Healthy || r.Epoch != epoch || r.Outcome != outcome || !strings.Contains(findings(r), want) {
			t.Errorf("%v: %+v\n%s\nwant %s", err, r, findings(r), want)
		}
	}
	create := func(object string, content []byte) {
		t.Helper()
		if err := s.Create(t.Context(), object, content); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c.Status(t.Context()); !errors.Is(err, pki.ErrUnreachable) {
		t.Errorf("a directory that is not mounted: %v", err)
	}
	create(pki.PublicInfo, nil)
	step("hardtack pki create begins the first one", "", 0)
	create(etcd.BeginObject(1), etcd.Encode(etcd.Begin{Token: "token", Members: []etcd.Peer{{Name: "a", URL: "https://a:2380"}}}))
	step("epoch 1 is not formed yet", "", 1)
	create(etcd.OutcomeObject(1), etcd.Encode(etcd.Outcome{Abandoned: "a has lost its data"}))
	step("epoch 1 is abandoned: a has lost its data", operate.Abandoned, 1)
	create(etcd.BeginObject(2), []byte(`{"format":2}`))
	if _, err := c.Status(t.Context()); !errors.Is(err, etcd.ErrNewer) || !strings.Contains(err.Error(), "epochs/2/begin") {
		t.Errorf("a record of a newer version: %v", err)
	}
}

// TestStoreAnswersNot: without the store nothing is known, and nothing is claimed.
func TestStoreAnswersNot(t *testing.T) {
	w := newWorld(t)
	w.SetFaults(awsfake.FaultFunc(func(c awsfake.Call) (f awsfake.Fault) {
		if c.Action == "GetParameter" {
			f.Refuse = &awsfake.Error{Status: 400, Code: "AccessDeniedException", Message: "no"}
		}
		return f
	}))
	if r, err := w.Status(t.Context()); !errors.Is(err, pki.ErrForbidden) {
		t.Errorf("%v, %+v", err, r)
	}
}

// TestForeignHolder: a machine without the cluster's tags can have a member's volume too, and be writing to it.
func TestForeignHolder(t *testing.T) {
	w := newWorld(t)
	w.EC2().Terminate(w.machines["c"])
	rescue, err := w.EC2().Run(awsfake.Machine{Zone: zone, Tags: map[string]string{role.TagCluster: "other"}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.EC2().AttachVolume(w.volumes["c"], rescue.ID, "/dev/sdf"); err != nil {
		t.Fatal(err)
	}
	r := w.status(t)
	i := slices.IndexFunc(r.Members, func(m operate.Member) bool { return m.Name == "c" })
	if v := r.Members[i].Volumes[0]; v.Holder != rescue.ID || !v.Held() {
		t.Errorf("%+v", v)
	}
}

// TestFailedBackup: who could not take a backup, and why, is shown with its age.
func TestFailedBackup(t *testing.T) {
	w := newWorld(t)
	w.says(t, "b", func(s *etcd.Status) {
		s.BackupFailed = &etcd.BackupFailure{At: w.now.Add(-4 * time.Minute), Why: "the place is full"}
	})
	r := w.status(t)
	if !r.Healthy || len(r.Findings) != 1 || r.Findings[0].Member != "b" || r.Findings[0].What != "its last backup failed 4m0s ago: the place is full" {
		t.Errorf("healthy %v\n%s", r.Healthy, findings(r))
	}
}

// TestDrills: what has been taken back from the place of backups is shown, by whichever member did it last; that it is too old,
// damaged or could not be had is a finding.
func TestDrills(t *testing.T) {
	failed := func(ago time.Duration, damaged bool) func(w *world, s *etcd.Status) {
		return func(w *world, s *etcd.Status) {
			s.DrillFailed = &etcd.BackupFailure{At: w.now.Add(-ago), Why: "no such object", Damaged: damaged}
		}
	}
	old := func(w *world, s *etcd.Status) { s.Verified.At = w.now.Add(-26 * time.Hour) }
	for name, c := range map[string]struct {
		all, b  func(w *world, s *etcd.Status)
		want    string // of the only finding; empty for none
		healthy bool
	}{
		"all is well":           {nil, nil, "", true},
		"old":                   {old, nil, "the newest backup that was taken back from its place and restored is 26h0m0s old", false},
		"another has done it":   {old, func(w *world, s *etcd.Status) { s.Verified.At, s.Verified.Verified = w.now, w.now }, "", true},
		"of another epoch":      {old, func(w *world, s *etcd.Status) { s.Verified.Verified, s.Epoch = w.now, 7 }, "is 26h0m0s old", false},
		"never":                 {func(_ *world, s *etcd.Status) { s.Verified = nil }, nil, "no backup was taken back", true},
		"failed":                {nil, failed(time.Hour, false), "b: its last drill failed 1h0m0s ago: no such object", true},
		"never but failed":      {func(_ *world, s *etcd.Status) { s.Verified = nil }, failed(time.Hour, false), "b: its last drill failed", true},
		"failed and done since": {nil, failed(24*time.Hour, false), "", true},
		"damaged":               {nil, failed(time.Hour, true), "b: a stored backup was found damaged 1h0m0s ago: no such object", false},
		"damaged, then another": {nil, failed(24*time.Hour, true), "b: a stored backup was found damaged 24h0m0s ago", true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			for _, m := range w.Members {
				w.says(t, m, func(s *etcd.Status) {
					if c.all != nil {
						c.all(w, s)
					}
					if m == "b" && c.b != nil {
						c.b(w, s)
					}
				})
			}
			r := w.status(t)
			var found []operate.Finding
			for _, f := range r.Findings {
				if !strings.Contains(f.What, "epoch 7") { // what the case of another epoch is about
					found = append(found, f)
				}
			}
			if (len(found) == 0) != (c.want == "") || len(found) > 1 || r.Healthy != c.healthy {
				t.Fatalf("healthy %v\n%s", r.Healthy, findings(r))
			}
			if c.want != "" && (!strings.Contains(found[0].Member+": "+found[0].What, c.want) || found[0].Next == "") {
				t.Errorf("%+v, want %q", found[0], c.want)
			}
		})
	}
}
