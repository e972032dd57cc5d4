//go:build linux

package disk

import (
	"context"
	"log/slog"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"

	"github.com/hardtack/packer-plugin-hardtack/pkg/ami"
	"github.com/hardtack/packer-plugin-hardtack/pkg/ami/cloud"
	"github.com/hardtack/packer-plugin-hardtack/pkg/awsfake"
	"github.com/hardtack/packer-plugin-hardtack/pkg/disk/qcow2"
)

// changedReader gives another first byte of one block.
type changedReader struct {
	ami.SnapshotReader
	block int32
}

func (c changedReader) Get(ctx context.Context, snapshot string, block ami.StoredBlock, content []byte) error {
	err := c.SnapshotReader.Get(ctx, snapshot, block, content)
	if block.Block == c.block {
		content[0] ^= 1
	}
	return err
}

// counted counts what is begun and done.
type counted struct{ total, done int64 }

func (c *counted) Begin(_ string, total int64) { c.total += total }
func (c *counted) Add(n int64)                 { c.done += n }

// The blocks of an AMI's snapshot are the disk that was published.
func TestVerifySealedAMI(t *testing.T) {
	r, s := sealedDisk(t, same)
	account := awsfake.New(awsfake.Options{EBS: awsfake.EBSOptions{Directory: t.TempDir()}})
	server := httptest.NewServer(account.Handler())
	t.Cleanup(func() {
		server.Close()
		if err := account.Close(); err != nil {
			t.Error(err)
		}
	})
	c := cloud.New(aws.Config{Region: "us-west-2", BaseEndpoint: &server.URL, Credentials: credentials.NewStaticCredentialsProvider("AKIDEXAMPLE", "secret", "")},
		cloud.Options{Attempt: time.Minute, Pause: 5 * time.Millisecond, Poll: time.Millisecond, Patience: time.Minute})
	p, err := ami.New(ami.Config{Blocks: c, Snapshots: c, Images: c, State: t.TempDir(), Workers: 4, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	d, err := qcow2.Open(r.File)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = d.Close() }() // only read
	published, err := p.Publish(t.Context(), ami.Request{Disk: d, Image: "test", Architecture: "amd64"})
	if err != nil {
		t.Fatal(err)
	}
	fetched := func(reader ami.SnapshotReader) *os.File {
		t.Helper()
		f, err := os.Create(filepath.Join(t.TempDir(), "fetched"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = f.Close() })
		if err := f.Truncate(published.Volume * ami.GiB); err != nil {
			t.Fatal(err)
		}
		progress := &counted{}
		// One worker: the counter is not for more.
		if err := ami.Fetch(t.Context(), reader, published.Snapshot, f, 1, progress); err != nil || progress.total == 0 || progress.done != progress.total {
			t.Fatalf("%v, with %d of %d bytes", err, progress.done, progress.total)
		}
		return f
	}
	if v, err := VerifySealed(t.Context(), fetched(c), nil); err != nil || v.RootHash != s.hash.String() {
		t.Errorf("%+v, %v, want root hash %s", v, err, s.hash)
	}
	changed := fetched(changedReader{c, int32((s.RootStart + s.RootSize/2) / ami.BlockSize)})
	if _, err := VerifySealed(t.Context(), changed, nil); err == nil || !strings.Contains(err.Error(), "the hash tree on the disk is another") {
		t.Errorf("a changed block of the snapshot: %v", err)
	}
}
