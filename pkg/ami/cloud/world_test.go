package cloud_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"log/slog"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"

	"github.com/hardtack/packer-plugin-hardtack/pkg/ami"
	"github.com/hardtack/packer-plugin-hardtack/pkg/ami/cloud"
	"github.com/hardtack/packer-plugin-hardtack/pkg/awsfake"
	"github.com/hardtack/packer-plugin-hardtack/pkg/disk/qcow2"
)

const (
	home = "us-west-2"
	mib  = 1 << 20
)

// world is an account behind its wire protocols, and a client of it.
type world struct {
	account *awsfake.Account
	url     string
	state   string
	options cloud.Options
	// credentials are what calls are signed with.
	credentials aws.CredentialsProvider
}

// quick has nobody wait for what the stand-in says at once.
var quick = cloud.Options{Attempt: 10 * time.Second, Pause: 5 * time.Millisecond, Poll: time.Millisecond, Patience: time.Minute}

func newWorld(t *testing.T, o awsfake.Options) *world {
	t.Helper()
	o.EBS.Directory = t.TempDir()
	if o.Rates == nil {
		// Three writes a second: what is refused is tried again, which is another test.
		o.Rates = map[string]float64{"ssm:PutParameter": 0}
	}
	account := awsfake.New(o)
	server := httptest.NewServer(account.Handler())
	t.Cleanup(func() {
		server.Close()
		if err := account.Close(); err != nil {
			t.Error(err)
		}
	})
	return &world{account: account, url: server.URL, state: t.TempDir(), options: quick, credentials: credentials.NewStaticCredentialsProvider("AKIDEXAMPLE", "secret", "")}
}

func (w *world) client(region string) *cloud.Client {
	return cloud.New(aws.Config{Region: region, BaseEndpoint: &w.url, Credentials: w.credentials}, w.options)
}

func (w *world) publisher(t *testing.T) *ami.Publisher {
	t.Helper()
	c := w.client(home)
	p, err := ami.New(ami.Config{Blocks: c, Snapshots: c, Images: c, State: w.state, Workers: 8, ConsistencyWait: 3 * time.Second, Log: slog.New(slog.NewTextHandler(t.Output(), nil))})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// publish publishes a disk image, which must succeed.
func (w *world) publish(t *testing.T, file string, change ...func(*ami.Request)) ami.Result {
	t.Helper()
	r, err := w.publisher(t).Publish(t.Context(), request(t, file, change...))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func request(t *testing.T, file string, change ...func(*ami.Request)) ami.Request {
	t.Helper()
	d, err := qcow2.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	r := ami.Request{Disk: d, Image: "test", Architecture: "amd64"}
	for _, f := range change {
		f(&r)
	}
	return r
}

// makeDisk makes a sparse disk of that size, with data in these blocks. A block's content follows from its number
// and from what.
func makeDisk(tb testing.TB, size int64, what string, blocks ...int) string {
	tb.Helper()
	name := filepath.Join(tb.TempDir(), "disk.raw")
	f, err := os.Create(name)
	if err != nil {
		tb.Fatal(err)
	}
	if err := f.Truncate(size); err != nil {
		tb.Fatal(err)
	}
	if err := f.Close(); err != nil {
		tb.Fatal(err)
	}
	writeBlocks(tb, name, what, blocks...)
	return name
}

// writeBlocks overwrites blocks of a disk; what "" is zeros.
func writeBlocks(tb testing.TB, name, what string, blocks ...int) {
	tb.Helper()
	f, err := os.OpenFile(name, os.O_WRONLY, 0)
	if err != nil {
		tb.Fatal(err)
	}
	defer f.Close()
	for _, b := range blocks {
		if _, err := f.WriteAt(blockOf(b, what), int64(b)*ami.BlockSize); err != nil {
			tb.Fatal(err)
		}
	}
}

func blockOf(b int, what string) []byte {
	if what == "" {
		return make([]byte, ami.BlockSize)
	}
	sum := sha256.Sum256(binary.BigEndian.AppendUint64([]byte(what), uint64(b)))
	return bytes.Repeat(sum[:], ami.BlockSize/len(sum))
}

// holds checks that a snapshot is the disk, byte for byte, and what follows it its manifest.
func (w *world) holds(t *testing.T, snapshot, file string) {
	t.Helper()
	out, err := os.Create(filepath.Join(t.TempDir(), "read.raw"))
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	if err := w.account.Images().WriteRaw(snapshot, out); err != nil {
		t.Fatal(err)
	}
	want, got := request(t, file).Disk, request(t, out.Name()).Disk
	a, b := make([]byte, mib), make([]byte, mib)
	for _, by := range []ami.Disk{want, got} { // what either has
		eachRange(t, by, func(start, end int64) {
			for at := start; at < min(end, want.Size()); at += int64(len(a)) {
				n := min(int64(len(a)), want.Size()-at)
				_, err1 := want.ReadAt(a[:n], at)
				_, err2 := got.ReadAt(b[:n], at)
				if err1 != nil || err2 != nil || !bytes.Equal(a[:n], b[:n]) {
					t.Fatalf("snapshot %s differs from the disk at byte %d: %v, %v", snapshot, at, err1, err2)
				}
			}
		})
	}
	manifest, err := ami.Scan(t.Context(), want, 2, nil)
	if err != nil {
		t.Fatal(err)
	}
	kept, err := ami.ReadManifest(t.Context(), w.client(home), snapshot, want.Size())
	if err != nil {
		t.Fatal(err)
	}
	if kept.Digest() != manifest.Digest() {
		t.Errorf("the kept manifest is of %d blocks, and the disk has %d", len(kept.Blocks), len(manifest.Blocks))
	}
}

// eachRange calls f for what may hold something.
func eachRange(t *testing.T, d ami.Disk, f func(start, end int64)) {
	t.Helper()
	for at := int64(0); ; {
		start, end, ok, err := d.Data(at)
		if err != nil {
			t.Fatal(err)
		}
		if !ok {
			return
		}
		f(start, end)
		at = end
	}
}

// only checks that these images and their snapshots are all that there is, and no journal.
func (w *world) only(t *testing.T, images ...string) {
	t.Helper()
	snapshots := map[string]bool{}
	list := w.account.Images().List()
	if len(list) != len(images) {
		t.Errorf("there are %d images, want %d", len(list), len(images))
	}
	for _, i := range list {
		for _, d := range i.Disks {
			snapshots[d.Snapshot] = true
		}
	}
	for _, s := range w.account.Images().Snapshots() {
		if !snapshots[s.ID] {
			t.Errorf("snapshot %s (%s) is left behind", s.ID, s.State)
		}
	}
	left, err := filepath.Glob(filepath.Join(w.state, "*.journal*"))
	if err != nil || len(left) > 0 {
		t.Errorf("journals are left: %v, %v", left, err)
	}
}
