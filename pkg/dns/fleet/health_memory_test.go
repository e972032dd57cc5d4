package fleet

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/netip"
	"strconv"
	"testing"

	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/record"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// one is a group of one machine.
func one(r role.Role, id string, at netip.Addr) record.Group {
	return record.Group{Role: r, Members: []record.Member{{InstanceID: id, Lifecycle: record.InService, Private: at}}}
}

// read applies checks to groups of one machine each, and returns how the machines are.
func read(t *testing.T, h *Health, checks map[role.Role]check, groups ...record.Group) (healthy []bool) {
	t.Helper()
	f := record.Fleet{Cluster: "demo", Groups: groups}
	if err := h.apply(t.Context(), &f, checks); err != nil {
		t.Fatal(err)
	}
	for _, g := range f.Groups {
		healthy = append(healthy, g.Members[0].Healthy)
	}
	return healthy
}

// connection is a check that one failure ends, and three answers make good again.
func connection(t *testing.T, port string) check {
	t.Helper()
	n, err := strconv.Atoi(port)
	if err != nil {
		t.Fatal(err)
	}
	return check{Port: n, Failures: 1, Successes: 3}.complete(role.Minions, "demo")
}

// What is known is known of one machine in one role at one address, and only while the machine is there: whoever is new is
// published with the first answer.
func TestHealthKnowsWhom(t *testing.T) {
	const good, dead = 1, 2 // 127.0.0.1 answers, 127.0.0.2 does not
	c := connection(t, plain(t))
	checks := map[role.Role]check{role.Minions: c, role.Masters: c}
	closed := map[role.Role]check{role.Minions: connection(t, "1"), role.Masters: connection(t, "1")}
	a := one(role.Minions, "a", loopback(good))
	for name, tt := range map[string]struct {
		before map[role.Role]check
		was    record.Group
		gone   bool
		want   bool
	}{
		"itself":            {closed, a, false, false},
		"another id":        {closed, one(role.Minions, "b", loopback(good)), false, true},
		"another address":   {checks, one(role.Minions, "a", loopback(dead)), false, true},
		"another role":      {closed, one(role.Masters, "a", loopback(good)), false, true},
		"one that had left": {closed, a, true, true},
	} {
		h := &Health{}
		if read(t, h, tt.before, tt.was)[0] {
			t.Errorf("%s is well before", name)
		}
		if tt.gone {
			read(t, h, checks)
		}
		if got := read(t, h, checks, a)[0]; got != tt.want {
			t.Errorf("after %s was dead the machine is well: %t", name, got)
		}
	}
}

// Machines are remembered side by side, and one that fails takes no other with it.
func TestHealthOfSeveral(t *testing.T) {
	c := map[role.Role]check{role.Minions: connection(t, plain(t))}
	a, b := one(role.Minions, "a", loopback(1)), one(role.Minions, "b", loopback(1))
	h := &Health{}
	read(t, h, map[role.Role]check{role.Minions: connection(t, "1")}, a, b)
	for i, want := range []bool{false, false, true} {
		if got := read(t, h, c, a, b); got[0] != want || got[1] != want {
			t.Errorf("with %d answers they are well: %v", i+1, got)
		}
	}
}

// A machine without IPv4 is asked at its address of IPv6; this one is 127.0.0.1 in the form of IPv6 (RFC 4291, 2.5.5.2), since
// not every machine that runs tests has ::1.
func TestHealthByIPv6(t *testing.T) {
	g := one(role.Minions, "a", netip.Addr{})
	g.Members[0].Private6 = netip.MustParseAddr("::ffff:127.0.0.1")
	if !read(t, nil, map[role.Role]check{role.Minions: connection(t, plain(t))}, g)[0] {
		t.Error("it is not well")
	}
}

// A reading whose caller does not wait for it says nothing of the machines.
func TestHealthForgetsNothingInAReadingThatEnds(t *testing.T) {
	c := map[role.Role]check{role.Minions: connection(t, plain(t))}
	h := &Health{}
	g := one(role.Minions, "a", loopback(1))
	read(t, h, c, g)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := h.apply(ended, &record.Fleet{Groups: []record.Group{g}}, c); err == nil {
		t.Error("it is taken")
	}
	if !read(t, h, c, g)[0] {
		t.Error("the machine is not well any more")
	}
}

// The log has a line when a machine is seen first, and when it changes, and none in between.
func TestHealthTellsChanges(t *testing.T) {
	s := newServer(t)
	var log bytes.Buffer
	h := &Health{Log: slog.New(slog.NewJSONHandler(&log, nil))}
	f := File{Path: inventoryOf(t, "port: "+s.port+", server_name: example.com, failures: 2, successes: 2, ca: "+s.ca), Health: h}
	for i, step := range []struct {
		status int
		told   bool
		well   bool
	}{
		{200, true, true}, {200, false, true}, {500, false, true}, {500, true, false}, {500, false, false},
		{200, false, false}, {200, true, true},
	} {
		log.Reset()
		s.status.Store(int32(step.status))
		well(t, f)
		if told := log.Len() > 0; told != step.told {
			t.Errorf("step %d: %q", i, log.String())
		}
		if !step.told {
			continue
		}
		var line struct {
			Role, ID, Address string
			Well              bool
		}
		err := json.Unmarshal(log.Bytes(), &line)
		if err != nil || line.Well != step.well || line.Role != "masters" || line.ID != "m1" || line.Address != "127.0.0.1" {
			t.Errorf("step %d: %q, %v", i, log.String(), err)
		}
	}
	s.status.Store(http.StatusInternalServerError)
	log.Reset()
	dead := &Health{Log: h.Log}
	read(t, dead, map[role.Role]check{role.Minions: connection(t, "1")}, one(role.Minions, "a", loopback(1)))
	if !bytes.Contains(log.Bytes(), []byte(`"well":false`)) {
		t.Errorf("one that is dead when it is seen first: %q", log.String())
	}
}
