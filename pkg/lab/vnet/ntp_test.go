package vnet

import (
	"net"
	"testing"
	"time"

	"github.com/beevik/ntp"
)

// TestClock asks the network's time server with a client that is not ours, and by both versions that are in use. Nothing of it
// counts as an attempt to reach the outside; everything else at that address does.
func TestClock(t *testing.T) {
	n := newNetwork(t, Config{})
	p := attach(t, n, "a", "10.1.0.10")
	g := newGuest(t, n, p)
	ask := func(version int) (*ntp.Response, error) {
		return ntp.QueryWithOptions(Clock().String(), ntp.QueryOptions{Version: version, Timeout: 5 * time.Second, Dialer: func(_, remote string) (net.Conn, error) {
			return g.dialUDP(t, remote), nil
		}})
	}
	for _, version := range []int{3, 4} {
		r, err := ask(version)
		if err != nil {
			t.Fatal(err)
		}
		if err := r.Validate(); err != nil {
			t.Errorf("version %d: %v", version, err)
		}
		if r.ClockOffset.Abs() > time.Second || r.Stratum != clockStratum || r.Leap != ntp.LeapNoWarning {
			t.Errorf("version %d: %+v", version, r)
		}
	}
	if refused := n.Refused(); len(refused) != 0 {
		t.Errorf("refused %v", refused)
	}
	if _, err := g.dial(within(t), "169.254.169.123:80"); err == nil || len(n.Refused()) != 1 {
		t.Errorf("another port: %v, %v", err, n.Refused())
	}
	// A time server that appears late, or never.
	p.SetFault(Clock(), Refusing)
	if r, err := ask(4); err == nil {
		t.Errorf("a server that refuses answers %+v", r)
	}
	p.SetFault(Clock(), None)
	if _, err := ask(4); err != nil {
		t.Error(err)
	}
}

// TestNoAnswer has messages that are no question of a client's.
func TestNoAnswer(t *testing.T) {
	good := make([]byte, ntpLength)
	good[0] = 4<<3 | modeClient
	if answerNTP(good, time.Now()) == nil {
		t.Fatal("a client has no answer")
	}
	for name, m := range map[string][]byte{
		"empty": {}, "short": good[:ntpLength-1], "of a server": append([]byte{4<<3 | modeServer}, good[1:]...),
		"of version 1": append([]byte{1<<3 | modeClient}, good[1:]...), "of version 7": append([]byte{7<<3 | modeClient}, good[1:]...),
		"control": append([]byte{4<<3 | 6}, good[1:]...),
	} {
		if got := answerNTP(m, time.Now()); got != nil {
			t.Errorf("%s: %x", name, got)
		}
	}
}
