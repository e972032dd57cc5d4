package cloud_test

import (
	"crypto/sha256"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"

	"github.com/hardtack/packer-plugin-hardtack/pkg/ami"
	"github.com/hardtack/packer-plugin-hardtack/pkg/ami/cloud"
	"github.com/hardtack/packer-plugin-hardtack/pkg/awsfake"
	"github.com/hardtack/packer-plugin-hardtack/pkg/disk/qcow2"
)

// latency is what each call takes beside its own work. AWS reckons with 100 ms for a block ("Optimize performance for
// EBS direct APIs"); this is kinder to the client that waits for each.
const latency = 20 * time.Millisecond

// far is an account whose answers take their time, and a client of it.
func far(b *testing.B, connections int) *cloud.Client {
	b.Helper()
	account := awsfake.New(awsfake.Options{
		Rates: map[string]float64{"ebs:PutSnapshotBlock": 0}, EBS: awsfake.EBSOptions{Directory: b.TempDir()},
	})
	inner := account.Handler()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		time.Sleep(latency)
		inner.ServeHTTP(w, r)
	}))
	b.Cleanup(func() {
		server.Close()
		_ = account.Close()
	})
	options := quick
	options.Connections = connections
	return cloud.New(aws.Config{Region: home, BaseEndpoint: &server.URL, Credentials: credentials.NewStaticCredentialsProvider("AKIDEXAMPLE", "secret", "")}, options)
}

// benchDisk has 512 MiB, a quarter of which is data.
func benchDisk(b *testing.B) *qcow2.File {
	b.Helper()
	var blocks []int
	for i := range 256 {
		blocks = append(blocks, i*4)
	}
	d, err := qcow2.Open(makeDisk(b, 512*mib, "bench", blocks...))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = d.Close() })
	return d
}

func BenchmarkPublish(b *testing.B) {
	disk := benchDisk(b)
	b.SetBytes(disk.Size())
	for b.Loop() {
		c := far(b, ami.DefaultWorkers)
		p, err := ami.New(ami.Config{Blocks: c, Snapshots: c, Images: c, State: b.TempDir(), Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			b.Fatal(err)
		}
		if _, err := p.Publish(b.Context(), ami.Request{Disk: disk, Image: "bench", Architecture: "amd64"}); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkPlain is the client that sends every block in turn.
func BenchmarkPlain(b *testing.B) {
	disk := benchDisk(b)
	b.SetBytes(disk.Size())
	for b.Loop() {
		c := far(b, 1)
		snapshot, err := c.Start(b.Context(), ami.StartRequest{Token: "plain", Volume: 1})
		if err != nil {
			b.Fatal(err)
		}
		all, buffer := sha256.New(), make([]byte, ami.BlockSize)
		blocks := int32(disk.Size() / ami.BlockSize)
		for block := range blocks {
			if _, err := disk.ReadAt(buffer, int64(block)*ami.BlockSize); err != nil {
				b.Fatal(err)
			}
			digest := ami.Digest(sha256.Sum256(buffer))
			all.Write(digest[:])
			if err := c.Put(b.Context(), snapshot, block, buffer, digest); err != nil {
				b.Fatal(err)
			}
		}
		if err := c.Complete(b.Context(), snapshot, int(blocks), ami.Digest(all.Sum(nil))); err != nil {
			b.Fatal(err)
		}
		if err := c.WaitSnapshot(b.Context(), snapshot); err != nil {
			b.Fatal(err)
		}
		if _, err := c.Register(b.Context(), ami.Registration{Name: "plain", Architecture: "amd64", Snapshot: snapshot, Volume: 1}); err != nil {
			b.Fatal(err)
		}
	}
}
