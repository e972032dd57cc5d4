package certs_test

import (
	"crypto/tls"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/pki"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// reader reads pairs of a directory until it is stopped. read returns false where there was nothing to read.
type reader struct {
	stop         chan struct{}
	whole, mixed int
}

func (r *reader) until(read func() bool) {
	for {
		select {
		case <-r.stop:
			return
		default:
		}
		if read() {
			r.whole++
		}
	}
}

// TestReadersSeeWholePairs reads, as the daemons do, while pairs are replaced as fast as they can be. Where the
// directory is resolved once, certificate and key always belong together. Where two files are opened by their
// paths, as every daemon does, the two can be of two generations: then Go refuses the pair, and reading
// again gives a whole one.
func TestReadersSeeWholePairs(t *testing.T) {
	b := newBench(t, role.Etcd)
	b.mustMint(t, "etcd minted")
	dir := filepath.Join(b.root, pki.Dir, "etcd")
	stop := make(chan struct{})
	once, twice := &reader{stop: stop}, &reader{stop: stop}
	var group sync.WaitGroup
	group.Go(func() { once.until(func() bool { return readOnce(t, dir) }) })
	group.Go(func() { twice.until(func() bool { return twice.readTwice(t, dir) }) })
	const renewals = 40
	for range renewals {
		b.now = b.now.Add(5 * 24 * time.Hour)
		b.mustMint(t, "etcd minted")
	}
	close(stop)
	group.Wait()
	if once.whole == 0 || twice.whole == 0 {
		t.Fatalf("nothing was read: %d, %d", once.whole, twice.whole)
	}
	t.Logf("%d renewals back to back; %d reads of a generation, all whole; %d reads of two paths, after %d that were refused and tried again",
		renewals, once.whole, twice.whole, twice.mixed)
}

// readOnce resolves the current generation once, and reads both files of it.
func readOnce(t *testing.T, dir string) bool {
	t.Helper()
	root, err := os.OpenRoot(filepath.Join(dir, ".current"))
	if err != nil {
		return false // swept between the link and the directory
	}
	crt, crtErr := root.ReadFile("server.crt")
	key, keyErr := root.ReadFile("server.key")
	_ = root.Close()
	if crtErr != nil || keyErr != nil {
		return false // swept while it was read: a generation that has ended gives nothing, rather than half
	}
	if _, err := tls.X509KeyPair(crt, key); err != nil {
		t.Errorf("a generation is mixed: %v", err)
	}
	return true
}

// readTwice opens both files by their paths, until they belong together.
func (r *reader) readTwice(t *testing.T, dir string) bool {
	t.Helper()
	for range 100 {
		if _, err := tls.LoadX509KeyPair(filepath.Join(dir, "server.crt"), filepath.Join(dir, "server.key")); err == nil {
			return true
		}
		r.mixed++
	}
	t.Error("no whole pair in a hundred tries")
	return false
}
