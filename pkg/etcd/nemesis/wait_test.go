package nemesis

import (
	"context"
	"os"
	"path/filepath"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/etcd"
	"github.com/hardtack/packer-plugin-hardtack/pkg/etcd/gateway"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/member"
)

// A fault that needs something to have happened waits for it, and not for a time: on a machine with other work to do all
// takes longer.

// look is the time between two looks. What is waited for is counted in looks, which take longer on a busy machine too.
const look = 5 * time.Millisecond

// until waits for something that has to happen, for as long as a member may take to be replaced.
func (s *schedule) until(happens func() bool) bool { return s.within(20*time.Second, happens) }

// within waits for something that may happen, for about so long, and reports whether it did.
func (s *schedule) within(d time.Duration, happens func() bool) bool {
	for range d / look {
		if happens() {
			return true
		}
		if sleep(s.ctx, look) != nil {
			return false
		}
	}
	return happens()
}

// learns waits until the machine of a seat has a log; or else until its etcd answers, as a learner that has what the leader
// had.
func (s *schedule) learns(seat string, log bool) {
	m := s.at[seat]
	s.until(func() bool {
		if log {
			logs, err := os.ReadDir(filepath.Join(m.mountpoint(), etcd.DataDir, "member", "wal"))
			return err == nil && len(logs) > 0
		}
		said, err := m.ask(s.ctx, "https://"+m.address.String()+":"+clientPort)
		return err == nil && said.Applied > 0
	})
}

// ask asks a machine's etcd, from that machine, about itself.
func (m *machine) ask(ctx context.Context, url string) (member.Status, error) {
	peer := gateway.New(gateway.Config{URL: url, TLS: m.w.tls.client, Dial: m.dial})
	defer peer.Close()
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	return peer.Status(ctx)
}

// acknowledges waits until machines have acknowledged some more writes, for about so long at most, and reports whether they
// did.
func (s *schedule) acknowledges(writes int64, d time.Duration, by ...*machine) bool {
	count := func() (n int64) {
		for _, m := range by {
			n += m.writes.Load()
		}
		return n
	}
	before := count()
	return s.within(d, func() bool { return count() >= before+writes })
}

// reports waits until a machine's agent reports a row, for about so long at most.
func (s *schedule) reports(m *machine, row etcd.Row, d time.Duration) bool {
	return s.within(d, func() bool { return m.isAt(row) })
}

func (m *machine) isAt(row etcd.Row) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.row == row
}
