package backup

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/hardtack/packer-plugin-hardtack/pkg/awsfake"
	"github.com/hardtack/packer-plugin-hardtack/pkg/base/clock"
	"github.com/hardtack/packer-plugin-hardtack/pkg/etcd"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/member"
)

// handClock stands still.
type handClock struct {
	clock.System
	now time.Time
}

func (c *handClock) Now() time.Time { return c.now }

// TestDrill takes backups of a real etcd back from a directory and from a bucket: one that is whole, and then ones of which
// something was changed behind our back. Each of them was restored for a trial when it was taken.
func TestDrill(t *testing.T) {
	r := newRig(t)
	account, who, url := fake(t)
	objects := account.S3()
	inDir := func(name string) string { return filepath.Join(r.place, filepath.FromSlash(name)) }
	for kind, place := range map[string]struct {
		Place
		read  func(name string) []byte
		write func(name string, content []byte)
	}{
		"dir": {r.keeper.Place,
			func(name string) []byte { data, err := os.ReadFile(inDir(name)); assert.NilError(t, err); return data },
			func(name string, content []byte) { assert.NilError(t, os.WriteFile(inDir(name), content, 0o600)) }},
		"bucket": {inBucket(t, url, "s3://"+bucketOfTests, who),
			func(name string) []byte { return objects.Objects(bucketOfTests)[name] },
			func(name string, content []byte) { objects.Set(bucketOfTests, name, content) }},
	} {
		t.Run(kind, func(t *testing.T) {
			now := &handClock{now: time.Now()}
			k := &Keeper{Place: place, Cluster: "demo", Scratch: r.scratch, Program: r.keeper.Program, Clock: now}
			if b, err := k.Drill(t.Context(), 1); b != nil || err != nil {
				t.Fatalf("before the first backup: %+v, %v", b, err)
			}
			assert.NilError(t, k.Take(t.Context(), 1, voter{client: r.Client}))
			newest, err := place.Newest(t.Context(), 1)
			assert.NilError(t, err)
			now.now = now.now.Add(10 * time.Minute)
			whole, err := k.Drill(t.Context(), 1)
			assert.NilError(t, err)
			want := newest.Backup()
			want.Verified = now.Now().UTC()
			assert.DeepEqual(t, whole, want)

			snapshot, description := newest.Name, newest.Name+describedEnd
			text, data := place.read(description), place.read(snapshot)
			for wrong, c := range map[string]struct {
				name    string
				content []byte
				want    string
			}{
				"a byte":           {snapshot, flipped(data, len(data)/2), "was stored with"},
				"cut off":          {snapshot, data[:len(data)-sector], "was stored with"},
				"larger":           {snapshot, append(bytes.Clone(data), make([]byte, 1<<20)...), "was stored with"},
				"empty":            {snapshot, []byte{}, "was stored with"},
				"its count":        {description, bytes.Replace(text, []byte(`"keys":`), []byte(`"keys":1`), 1), "its description says"},
				"no description":   {description, []byte("{"), "reading " + description},
				"another's":        {description, bytes.Replace(text, []byte(`"epoch":1`), []byte(`"epoch":2`), 1), "does not describe"},
				"another's, whole": {snapshot, bytes.Repeat([]byte("other"), 1000), "was stored with"},
			} {
				place.write(c.name, c.content)
				b, err := k.Drill(t.Context(), 1)
				if b != nil || !errors.Is(err, member.ErrDamaged) || !strings.Contains(err.Error(), c.want) {
					t.Errorf("%s: %+v, %v", wrong, b, err)
				}
				if _, err := os.Stat(r.scratch); !errors.Is(err, os.ErrNotExist) {
					t.Errorf("%s: the scratch directory is left: %v", wrong, err)
				}
				place.write(snapshot, data)
				place.write(description, text)
			}
			_, err = k.Drill(t.Context(), 1)
			assert.NilError(t, err)
		})
	}

	// A place that does not answer is no damage.
	script := &awsfake.Script{}
	script.Add("GetObject", awsfake.Fault{Refuse: &awsfake.Error{Status: 403, Code: "AccessDenied", Message: "no"}})
	account.SetFaults(script)
	k := &Keeper{Place: inBucket(t, url, "s3://"+bucketOfTests, who), Cluster: "demo", Scratch: r.scratch, Program: r.keeper.Program, Clock: clock.System{}}
	if _, err := k.Drill(t.Context(), 1); !errors.Is(err, ErrForbidden) || errors.Is(err, member.ErrDamaged) {
		t.Errorf("%v", err)
	}
}

func flipped(data []byte, at int) []byte {
	data = bytes.Clone(data)
	data[at] ^= 1
	return data
}

// TestDrillNeedsRoom: what does not fit beside the member's data is not fetched.
func TestDrillNeedsRoom(t *testing.T) {
	account, who, url := fake(t)
	s := snapshotFile(t, "x")
	place := inBucket(t, url, "s3://"+bucketOfTests, who)
	assert.NilError(t, place.Put(t.Context(), s.Object, s.file))
	k := &Keeper{Place: described100TB{place}, Scratch: filepath.Join(t.TempDir(), "scratch"), Clock: clock.System{}}
	before := account.Calls()["s3:GetObject"]
	if _, err := k.Drill(t.Context(), 1); err == nil || !strings.Contains(err.Error(), "etcd.size") {
		t.Errorf("%v", err)
	}
	if n := account.Calls()["s3:GetObject"] - before; n != 1 { // the description
		t.Errorf("%d objects were read", n)
	}
}

// described100TB is a place whose newest backup has 100 TB by its description.
type described100TB struct{ Place }

func (p described100TB) Newest(ctx context.Context, epoch int) (*Object, error) {
	o, err := p.Place.Newest(ctx, epoch)
	if err == nil {
		o.Size = 100e12
	}
	return o, err
}

// TestTidy: what a killed process has left on the member's disk is removed by the next one.
func TestTidy(t *testing.T) {
	place, err := Open("dir:"+t.TempDir(), Options{Cluster: "demo"})
	assert.NilError(t, err)
	k := &Keeper{Place: place, Scratch: filepath.Join(t.TempDir(), "scratch"), Clock: clock.System{}}
	assert.NilError(t, os.MkdirAll(filepath.Join(k.Scratch, "trial"), 0o700))
	b, err := k.Newest(t.Context(), 1)
	assert.NilError(t, err)
	assert.Equal(t, b, (*etcd.Backup)(nil))
	if _, err := os.Stat(k.Scratch); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("it is left: %v", err)
	}
	// And what this process is about to restore is left alone.
	assert.NilError(t, os.MkdirAll(k.Scratch, 0o700))
	_, err = k.Newest(t.Context(), 2)
	assert.NilError(t, err)
	_, err = os.Stat(k.Scratch)
	assert.NilError(t, err)
}

// TestCalls counts what a backup and a drill cost in S3: pkg/etcd/README.md says it.
func TestCalls(t *testing.T) {
	r := newRig(t)
	account, who, url := fake(t)
	k := &Keeper{Place: inBucket(t, url, "s3://"+bucketOfTests, who), Cluster: "demo", Scratch: r.scratch, Program: r.keeper.Program, Clock: clock.System{}}
	done := map[string]int{}
	calls := func(what string, want map[string]int) {
		t.Helper()
		got := map[string]int{}
		for call, n := range account.Calls() {
			if n -= done[call]; n > 0 && strings.HasPrefix(call, "s3:") {
				got[call] = n
				done[call] += n
			}
		}
		assert.DeepEqual(t, got, want)
		t.Logf("%s: %v", what, got)
	}
	assert.NilError(t, k.Take(t.Context(), 1, voter{client: r.Client}))
	calls("a backup", map[string]int{"s3:PutObject": 2})
	other := &Keeper{Place: k.Place, Cluster: "demo", Scratch: r.scratch, Program: r.keeper.Program, Clock: clock.System{}}
	for range 2 { // the second within five minutes is not asked for
		_, err := other.Newest(t.Context(), 1)
		assert.NilError(t, err)
	}
	calls("looking for the newest", map[string]int{"s3:ListObjectsV2": 1, "s3:GetObject": 1})
	_, err := k.Drill(t.Context(), 1)
	assert.NilError(t, err)
	calls("a drill", map[string]int{"s3:ListObjectsV2": 1, "s3:GetObject": 2})

	status, err := r.Status(t.Context())
	assert.NilError(t, err)
	stored := map[string]int64{}
	for name, data := range account.S3().Objects(bucketOfTests) {
		stored[filepath.Ext(name)] += int64(len(data))
	}
	t.Logf("a database of %d bytes: %d bytes of snapshot, %d of description", status.Size, stored[".db"], stored[".json"])
	if stored[".db"] < status.Size || stored[".db"] > status.Size+64<<10 || stored[".json"] == 0 || stored[".json"] > 500 {
		t.Errorf("%v", stored)
	}
}
