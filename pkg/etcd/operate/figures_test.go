package operate_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/etcd"
	"github.com/hardtack/packer-plugin-hardtack/pkg/etcd/etcdtest"
	"github.com/hardtack/packer-plugin-hardtack/pkg/etcd/gateway"
)

// TestFigures measures what pkg/etcd/README.md says of failures: how long no write is possible, and how long a new member of a
// large database takes. scripts/bench-etcd runs it.
func TestFigures(t *testing.T) {
	megabytes, asked := os.LookupEnv("HARDTACK_BENCH_ETCD")
	if !asked {
		t.Skip("takes minutes and seven times the size on the disk: scripts/bench-etcd runs it (HARDTACK_BENCH_ETCD=MB)")
	}
	size, err := strconv.Atoi(megabytes)
	if err != nil {
		t.Fatalf("HARDTACK_BENCH_ETCD: %v", err)
	}
	w := newRealWorld(t, etcdtest.Pace)
	w.bare = true
	w.create(etcd.BeginObject(1), etcd.Encode(etcd.Begin{Token: etcd.NewToken(), Members: w.Peers}))
	for _, s := range w.seats {
		s.Flags = []string{"--quota-backend-bytes=8589934592"}
		s.launch()
	}
	w.mustPut("a", "first")
	w.until("all vote", func() bool { return w.voters() == 3 })
	time.Sleep(3 * time.Second) // each was started again when the epoch was formed

	for what, signal := range map[string]syscall.Signal{"killed": syscall.SIGKILL, "ended (SIGTERM)": syscall.SIGTERM} {
		var gaps []time.Duration
		for range 5 {
			gaps = append(gaps, w.gapWithout(w.leader(), signal))
		}
		slices.Sort(gaps)
		t.Logf("leader %s: longest time without a write %s (median of 5; %s to %s)", what, gaps[2], gaps[0], gaps[4])
	}
	if said, err := os.ReadFile("/proc/self/status"); err == nil {
		for line := range strings.Lines(string(said)) {
			if peak, ok := strings.CutPrefix(line, "VmHWM:"); ok {
				t.Logf("peak memory of this process, which has the three agents' loops and the client: %s", strings.TrimSpace(peak))
			}
		}
	}
	if size > 0 {
		w.replaced(size)
	}
}

// voters is how many members vote.
func (w *realWorld) voters() (n int) {
	for _, name := range []string{"a", "b"} {
		list, err := gateway.New(gateway.Config{URL: w.seats[name].ClientURL()}).Members(w.t.Context())
		if err != nil {
			continue
		}
		for _, m := range list.Members {
			if m.Started && !m.Learner {
				n++
			}
		}
		return n
	}
	return 0
}

func (w *realWorld) leader() (leader *seat) {
	w.until("one leads", func() bool {
		for _, s := range w.seats {
			said, err := gateway.New(gateway.Config{URL: s.ClientURL()}).Status(w.t.Context())
			if err == nil && said.ID != 0 && said.ID == said.Leader {
				leader = s
				return true
			}
		}
		return false
	})
	return leader
}

// gapWithout ends a member's process and returns the longest time in which no write was acknowledged by the others.
func (w *realWorld) gapWithout(gone *seat, signal syscall.Signal) (longest time.Duration) {
	w.t.Helper()
	var others []*seat
	for _, s := range w.seats {
		if s != gone {
			others = append(others, s)
		}
	}
	write := func(n int) bool {
		// A write that was on its way to the old leader is given up after seconds: a client that waits for it would measure that.
		ctx, cancel := context.WithTimeout(w.t.Context(), 200*time.Millisecond)
		defer cancel()
		return others[n%2].putSized(ctx, "gap", 10) == nil
	}
	w.until("it takes writes", func() bool { return write(0) })
	began, last := time.Now(), time.Now()
	var ended time.Time
	for n := 0; ended.IsZero() || last.Sub(ended) < 3*time.Second; n++ {
		if ended.IsZero() && time.Since(began) > time.Second {
			ended = time.Now()
			if err := syscall.Kill(gone.PID(), signal); err != nil {
				w.t.Fatal(err)
			}
		}
		if write(n) {
			now := time.Now()
			longest, last = max(longest, now.Sub(last)), now
		} else if time.Since(last) > time.Minute {
			w.t.Fatal("no write for a minute: the others do not go on")
		}
		time.Sleep(2 * time.Millisecond)
	}
	gone.Kill() // it has ended; its machine starts it again
	w.until("it is back", func() bool { _, _, err := gone.keys("gap"); return err == nil })
	return longest.Round(time.Millisecond)
}

// putSized writes a value of a size in bytes.
func (s *seat) putSized(ctx context.Context, key string, size int) error {
	body := fmt.Sprintf(`{"key":%q,"value":%q}`, b64(key), base64.StdEncoding.EncodeToString(bytes.Repeat([]byte(key), size/len(key)+1)))
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.ClientURL()+"/v3/kv/put", strings.NewReader(body))
	if err != nil {
		return err
	}
	out, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	if err := out.Body.Close(); err != nil {
		return err
	}
	if out.StatusCode != http.StatusOK {
		return fmt.Errorf("etcd answers %s", out.Status)
	}
	return nil
}

// replaced replaces member c by an empty one in a cluster with so many MB of data.
func (w *realWorld) replaced(size int) {
	t := w.t
	for n := range size {
		w.until("a write", func() bool {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			return w.seats["a"].putSized(ctx, fmt.Sprintf("large%06d", n), 1<<20-1000) == nil
		})
	}
	said, err := gateway.New(gateway.Config{URL: w.seats["a"].ClientURL()}).Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	c := w.seats["c"]
	c.end()
	c.launch()
	began := time.Now()
	var added, promoted time.Time
	at := gateway.New(gateway.Config{URL: w.seats["a"].ClientURL()})
	for promoted.IsZero() {
		if time.Since(began) > 20*time.Minute {
			t.Fatalf("c is no voter: %s", &c.log)
		}
		time.Sleep(20 * time.Millisecond)
		list, err := at.Members(t.Context())
		if err != nil {
			continue
		}
		i := slices.IndexFunc(list.Members, func(m etcd.Member) bool { return m.PeerURL == c.PeerURL() })
		switch {
		case i < 0:
		case list.Members[i].Learner && added.IsZero():
			added = time.Now()
		case !list.Members[i].Learner && !added.IsZero():
			promoted = time.Now()
		}
	}
	t.Logf("database of %d MB: learner added after %s (guards at %d times the speed), promoted %s later", said.Size/1e6,
		added.Sub(began).Round(100*time.Millisecond), etcdtest.Pace, promoted.Sub(added).Round(100*time.Millisecond))
}
