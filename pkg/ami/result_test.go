package ami

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// What was asked for is what is made, and what the result says.
func TestPublishAsAsked(t *testing.T) {
	db, d := certificate(t), disk("abc.")
	request := Request{
		Disk: d, Image: "test", Architecture: "arm64", Key: aKey, Volume: 7, Description: "mine", Tags: map[string]string{"team": "x"},
		Facts: map[string]string{"kubernetes": "v1.36.3"}, UEFI: true, SecureBoot: db,
	}
	m, err := Scan(t.Context(), d, 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	s := situation{account: newAccount(), state: t.TempDir()}
	p := &progress{}
	r, err := s.publisher(t, s.state, func(c *Config) { c.Progress = p }).Publish(t.Context(), request)
	if err != nil {
		t.Fatal(err)
	}
	want := Result{
		Image: r.Image, Name: request.Name(m), Snapshot: r.Snapshot, Digest: request.Identity(m), Volume: 7, DiskBlocks: 3, SentBlocks: 4, SentBytes: 4 * BlockSize,
		Description: "mine", Tags: request.tags(m),
	}
	if diff := cmp.Diff(want, r, cmpopts.IgnoreUnexported(Result{})); diff != "" {
		t.Error(diff)
	}
	registration := Registration{Name: r.Name, Description: "mine", Architecture: "arm64", Snapshot: r.Snapshot, Volume: 7, Tags: r.Tags, UEFI: true, SecureBoot: db}
	if diff := cmp.Diff(registration, s.registered[r.Image]); diff != "" {
		t.Error(diff)
	}
	start := s.snapshots[r.Snapshot].StartRequest
	if len(start.Token) < 20 || len(start.Token) > 64 {
		t.Errorf("the token is %q", start.Token)
	}
	if diff := cmp.Diff(StartRequest{Token: start.Token, Volume: 7, Key: aKey, Description: "mine", Tags: r.Tags}, start); diff != "" {
		t.Error(diff)
	}
	// The disk is read, and sent with its manifest.
	if p.began != 2 || p.total != (4+4)*BlockSize || p.done != p.total {
		t.Errorf("the progress is %+v", p)
	}

	// Another of the line has its parent's key without naming it.
	request.Disk = disk("ab.d")
	second, err := s.publisher(t, s.state).Publish(t.Context(), request)
	if err != nil {
		t.Fatal(err)
	}
	if second.Parent != r.Snapshot || second.DiskBlocks != 3 || second.KeptBlocks != 2 || second.SentBlocks != 3 || second.SentBytes != 3*BlockSize {
		t.Errorf("the second: %+v", second)
	}
	next := s.snapshots[second.Snapshot].StartRequest
	if next.Parent != r.Snapshot || next.Key != NoKey || next.Token == start.Token {
		t.Errorf("the second is started by %+v", next)
	}
	// The first again is found, and each of its blocks read; one that is not of this disk is not taken for it.
	request.Disk, p.began, p.total, p.done = d, 0, 0, 0
	again, err := s.publisher(t, s.state, func(c *Config) { c.Progress = p }).Publish(t.Context(), request)
	if err != nil {
		t.Fatal(err)
	}
	want.Found, want.SentBlocks, want.SentBytes = true, 0, 0
	if diff := cmp.Diff(want, again, cmpopts.IgnoreUnexported(Result{})); diff != "" {
		t.Error(diff)
	}
	if p.began != 2 || p.total != (4+4)*BlockSize || p.done != p.total {
		t.Errorf("the progress is %+v", p)
	}
}

// Of what is asked for wrongly, or cannot be read, nothing is published.
func TestPublishNothing(t *testing.T) {
	unreadable := disk("abc.")
	unreadable.read = func(int64) error { return errBroken }
	for name, r := range map[string]Request{"no name": {Disk: disk("abc."), Architecture: "amd64"}, "an unreadable disk": requestOf(unreadable)} {
		a := newAccount()
		if got, err := a.publisher(t, t.TempDir()).Publish(t.Context(), r); err == nil || len(a.calls) > 0 || got.Name != "" {
			t.Errorf("%s: %+v, %v, by %q", name, got, err, a.calls)
		}
	}
}

func TestNewPublisher(t *testing.T) {
	a := newAccount()
	whole := Config{Blocks: a, Snapshots: a, Images: a, State: "x"}
	for name, change := range map[string]func(*Config){
		"blocks": func(c *Config) { c.Blocks = nil }, "snapshots": func(c *Config) { c.Snapshots = nil },
		"images": func(c *Config) { c.Images = nil }, "a directory": func(c *Config) { c.State = "" },
	} {
		c := whole
		change(&c)
		if p, err := New(c); err == nil || p != nil {
			t.Errorf("without %s: %v", name, err)
		}
	}
	p, err := New(whole)
	if err != nil || p.c.Workers != DefaultWorkers || p.c.ConsistencyWait != DefaultConsistencyWait {
		t.Errorf("by default %+v, %v", p.c, err)
	}
	whole.Workers, whole.ConsistencyWait = 3, 5
	if p, err := New(whole); err != nil || p.c.Workers != 3 || p.c.ConsistencyWait != 5 {
		t.Errorf("as it is said, %+v, %v", p.c, err)
	}
}

// An image of the same digest and another name is not taken for this one; neither is one that has failed made use of, and it is not
// published beside it.
func TestWhatIsFound(t *testing.T) {
	d := disk("abc.")
	s := situation{account: newAccount(), state: t.TempDir()}
	first := s.must(t, d)
	s.images[0].State, s.images[0].Reason = Failed, "no reason"
	s.calls = nil
	if r, err := s.publish(t, d); err == nil || r.Image != "" || !slices.Equal(s.calls, []string{"Find"}) {
		t.Errorf("one that has failed: %+v, %v after %v", r, err, s.calls)
	}
	s.images[0].State, s.images[0].Name = Available, "other"
	r, err := s.publish(t, d)
	if err != nil || r.Found || r.Image == first.Image {
		t.Errorf("one of another name: %+v, %v", r, err)
	}
	// One without our tag, which has the name, is another's.
	s.images[0].Tags = nil
	if r, err := s.publish(t, d); !errors.Is(err, ErrNameTaken) || r.Image != "" {
		t.Errorf("another's: %+v, %v", r, err)
	}
	s.clean(t, "its name is another's", false)
}

// What this or an earlier try has written is not read to be compared, and goes on where it ended.
func TestWhatIsOurs(t *testing.T) {
	d := disk("abc.")
	for _, c := range []struct {
		call           string // the first try ends with it
		found, resumed bool
	}{{"Start", false, true}, {"Complete", false, true}, {"WaitImage", true, false}} {
		s := situation{account: newAccount(), state: t.TempDir()}
		s.kept(t, d, c.call)
		s.calls = nil
		r, err := s.publish(t, d)
		if err != nil || r.Found != c.found || r.Resumed != c.resumed || slices.Contains(s.calls, "List") || slices.Contains(s.calls, "Start") != (c.call == "Start") {
			t.Errorf("after %s failed: %+v, %v, by %q", c.call, r, err, s.calls)
		}
	}
	s := situation{account: newAccount(), state: t.TempDir()}
	s.after = once("Register", func() error { return ErrNameTaken })
	if r, err := s.publish(t, d); err != nil || r.Found || r.Image != s.images[0].ID || slices.Contains(s.calls, "List") {
		t.Errorf("an answer is lost: %+v, %v, by %q", r, err, s.calls)
	}
}

// An error in the moment in which a snapshot is started: AWS may have started it, unless it says that it has not.
func TestAnswerToStartIsLost(t *testing.T) {
	for name, c := range map[string]struct {
		err    error
		starts int
	}{"lost": {errBroken, 2}, "refused": {ErrRefused, 1}} {
		s := situation{account: newAccount(), state: t.TempDir()}
		lost := once("Start", func() error { return c.err })
		if s.after = lost; c.starts == 1 {
			s.before, s.after = lost, nil
		}
		if _, err := s.publish(t, disk("abc.")); !errors.Is(err, c.err) {
			t.Errorf("%s: it ended with %v", name, err)
		}
		n := 0
		for _, call := range s.calls {
			if call == "Start" {
				n++
			}
		}
		if n != c.starts || len(s.snapshots) > 0 {
			t.Errorf("%s: %d requests, and left is %v", name, n, s.snapshots)
		}
		s.clean(t, name, false)
	}
}

// What cannot be taken away is known to the journal, for the next try to go on with.
func TestCleaningFails(t *testing.T) {
	d, stuck := disk("abc."), errors.New("stuck")
	for _, failing := range [][]string{
		{"Complete", "DeleteSnapshot"}, {"Start", "Start"}, {"Register", "DeleteSnapshot"}, {"WaitImage", "Deregister"}, {"WaitImage", "Find"},
		{"WaitImage", "DeleteSnapshot"},
	} {
		s := situation{account: newAccount(), state: t.TempDir()}
		began := false
		s.after = func(call string) error {
			if began = began || call == failing[0]; call == failing[0] {
				return errBroken
			}
			return nil
		}
		s.before = func(call string) error {
			if began && call == failing[1] {
				return stuck
			}
			return nil
		}
		if _, err := s.publish(t, d); !errors.Is(err, errBroken) || !errors.Is(err, stuck) {
			t.Errorf("%q fail: it ended with %v", failing, err)
		}
		// What was not asked for is not looked for.
		if n := len(s.calls); failing[0] == "Complete" && !slices.Equal(s.calls[n-2:], failing) {
			t.Errorf("%q fail: the calls were %q", failing, s.calls)
		}
		if !s.journal(t) {
			t.Errorf("%q fail: there is no journal", failing)
		}
		s.clean(t, failing[0], true)
		s.before, s.after = nil, nil
		s.publishes(t, d, failing[0])
	}
}

// A snapshot that takes no blocks any more ends the publication, unless it is an earlier try's: then another is begun.
func TestSnapshotIsGone(t *testing.T) {
	d := disk("abc.")
	s := situation{account: newAccount(), state: t.TempDir()}
	s.before = once("Put 1", func() error { return ErrGone })
	if _, err := s.publish(t, d); !errors.Is(err, ErrGone) {
		t.Errorf("it ended with %v", err)
	}
	s.clean(t, "gone", false)
	for _, call := range []string{"Put 1", "Complete"} {
		s = situation{account: newAccount(), state: t.TempDir()}
		s.kept(t, d, "Put 1")
		s.before = once(call, func() error {
			for _, snapshot := range s.snapshots {
				snapshot.state = Failed
			}
			return ErrGone
		})
		r, err := s.publish(t, d)
		if err != nil || r.Resumed || len(s.snapshots) != 1 {
			t.Errorf("%s: %+v, %v, %v", call, r, err, s.snapshots)
		}
		s.clean(t, "begun anew", false)
	}
	// What there was of it must go before.
	s = situation{account: newAccount(), state: t.TempDir()}
	s.kept(t, d, "Put 1")
	gone, broken := once("Put 1", func() error { return ErrGone }), breaks("DeleteSnapshot", 1)
	s.before = func(call string) error { return errors.Join(gone(call), broken(call)) }
	if r, err := s.publish(t, d); !errors.Is(err, errBroken) {
		t.Errorf("it cannot be deleted: %+v, %v", r, err)
	}
}

// A snapshot may be complete without our hearing of it; whether it is must be known.
func TestAnswerToCompleteIsLost(t *testing.T) {
	d := disk("abc.")
	for name, c := range map[string]struct {
		state State
		asked error
		good  bool
	}{"complete": {Available, nil, true}, "being sealed": {Pending, nil, true}, "failed": {Failed, nil, false}, "gone": {Missing, nil, false}, "not known": {Available, errBroken, false}} {
		s := situation{account: newAccount(), state: t.TempDir()}
		s.after = once("Complete", func() error {
			for id, snapshot := range s.snapshots {
				if snapshot.state = c.state; c.state == Missing {
					delete(s.snapshots, id)
				}
			}
			return ErrGone
		})
		if c.state == Pending {
			s.before = once("Register", func() error {
				for _, snapshot := range s.snapshots {
					snapshot.state = Available
				}
				return nil
			})
		}
		if complete := s.after; c.asked != nil {
			s.after = func(call string) error {
				if call == "SnapshotState" {
					return c.asked
				}
				return complete(call)
			}
		}
		if r, err := s.publish(t, d); (err == nil) != c.good || !c.good && !errors.Is(err, ErrGone) {
			t.Errorf("%s: %+v, %v", name, r, err)
		}
		s.clean(t, name, false)
	}
}

// A block that is damaged on its way is sent again, and not for ever.
func TestBlockIsDamaged(t *testing.T) {
	for times, good := range map[int]bool{1: true, 3: true, 4: false} {
		s := situation{account: newAccount(), state: t.TempDir()}
		n := 0
		s.before = func(call string) error {
			if call == "Put 1" {
				if n++; n <= times {
					return ErrDamaged
				}
			}
			return nil
		}
		r, err := s.publish(t, disk("abc."))
		if (err == nil) != good || !good && !errors.Is(err, ErrDamaged) || good && r.SentBlocks != 4 {
			t.Errorf("damaged %d times: %+v, %v", times, r, err)
		}
		if n != min(times+1, 4) {
			t.Errorf("damaged %d times: it was sent %d times", times, n)
		}
	}
}

// A disk that is written to is not published as what it was, and the journal of another version not misread.
func TestOtherContentThanPlanned(t *testing.T) {
	d := disk("abc.")
	s := situation{account: newAccount(), state: t.TempDir()}
	s.before = once("Start", func() error {
		d.content[2*BlockSize+7] ^= 1
		return nil
	})
	if _, err := s.publish(t, d); err == nil || errors.Is(err, ErrDamaged) {
		t.Errorf("what was written meanwhile is published: %v", err)
	}
	s.clean(t, "written meanwhile", false)
	s.before = once("Start", func() error {
		d.read = func(int64) error { return errBroken }
		return nil
	})
	if _, err := s.publish(t, d); !errors.Is(err, errBroken) {
		t.Errorf("what cannot be read any more: %v", err)
	}
	s.clean(t, "not to be read", false)

	d = disk("abc.")
	s.kept(t, d, "Put 1")
	found, err := filepath.Glob(filepath.Join(s.state, "*.journal"))
	if err != nil || len(found) != 1 {
		t.Fatal(found, err)
	}
	text, err := os.ReadFile(found[0])
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(found[0], bytes.ReplaceAll(text, []byte(`"kind":"disk"`), []byte(`"kind":"rope"`)), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := s.publish(t, d); err == nil || errors.Is(err, ErrDamaged) {
		t.Errorf("blocks of no known kind are published: %v", err)
	}
	s.clean(t, "of no known kind", false)
}

// A manifest that takes several blocks is sent block by block.
func TestLongManifestIsSent(t *testing.T) {
	m := filled(fit + 1)
	w, encoded, buffer := &publication{manifest: m}, m.Encode(), make([]byte, BlockSize)
	for i, content := range slices.Collect(slices.Chunk(encoded, BlockSize)) {
		write := Write{int32(fit+1) + int32(i), FromManifest, sha256.Sum256(content)}
		if err := w.readPlanned(write, encoded, buffer); err != nil || !bytes.Equal(buffer, content) {
			t.Errorf("block %d: %v", i, err)
		}
	}
}

// A parent that AWS does not take is done without; one that was named is not.
func TestParentIsRefused(t *testing.T) {
	d := disk("abc.")
	for _, named := range []bool{false, true} {
		s := situation{account: newAccount(), state: t.TempDir()}
		older := s.must(t, disk("ab.d"))
		s.before = once("Start", func() error { return errors.Join(ErrRefused, ErrParent) })
		r, err := s.publish(t, d, func(r *Request) {
			if named {
				r.Parent = older.Image
			}
		})
		if named != errors.Is(err, ErrParent) || !named && (err != nil || r.Parent != "" || r.KeptBlocks != 0 || r.SentBlocks != 4) {
			t.Errorf("named %v: %+v, %v", named, r, err)
		}
		s.clean(t, "refused", false)
	}
}
