package lab

import (
	"context"
	"errors"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/autoscaling"

	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/fleet"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/evict"
)

// TestEnd ends a minion by its group: it is held until a master answers the hook, and then replaced. No API server runs here,
// and so nothing is said to be known of its pods.
func TestEnd(t *testing.T) {
	t.Parallel()
	_, c := up(t, planned(t))
	s := until(t, c, "both minions serve", inService("minions", 2))
	victim := s.Machines[slices.IndexFunc(s.Machines, func(m MachineStatus) bool { return m.Group == "minions" })]
	at, err := c.AWS(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	hook := &fleet.Evictions{API: autoscaling.NewFromConfig(ownerOf(at)), Cluster: "demo"}
	var mu sync.Mutex
	var said []string
	held := make(chan struct{})
	answered := make(chan error, 1)
	go func() {
		<-held
		still, err := c.Status(t.Context())
		if m, found := still.Find(victim.ID); err == nil && (found != nil || m.Power != "on") {
			err = errors.New("the machine is off before the masters have answered")
		}
		_, released := hook.Release(t.Context(), evict.Machine{ID: victim.ID, Group: "demo-minions"})
		answered <- errors.Join(err, released)
	}()
	out, err := c.End(t.Context(), victim, func(text string) {
		mu.Lock()
		defer mu.Unlock()
		if said = append(said, text); strings.HasSuffix(text, "Terminating:Wait") {
			close(held)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := <-answered; err != nil {
		t.Error(err)
	}
	if out.Moved || out.Left != "" || !strings.Contains(out.Unknown, "events of node") || out.Group != "minions" {
		t.Errorf("%+v", out)
	}
	s = until(t, c, "it is replaced", inService("minions", 2))
	if m, err := s.Find(victim.ID); err != nil || m.Power != "off" || m.End != "terminated" {
		t.Errorf("%+v, %v", m, err)
	}
	if _, err := c.End(t.Context(), victim, func(string) {}); err == nil || !strings.Contains(err.Error(), "ending machine "+victim.ID) {
		t.Errorf("ending it again: %v", err)
	}
}

// scripted is a daemon that answers each look with the next scene, and then with the last one.
type scripted struct {
	mu     sync.Mutex
	scenes []scene
	ended  bool
}

type scene struct {
	machine MachineStatus
	events  []NodeEvent
	// away: the API server does not answer.
	away bool
}

func (d *scripted) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := d.scenes[0]
	switch {
	case strings.HasSuffix(r.URL.Path, "/end"):
		d.ended = true
		writeJSON(w, struct{}{})
	case strings.HasSuffix(r.URL.Path, "/events") && now.away:
		writeError(w, http.StatusServiceUnavailable, errors.New("connection refused"))
	case strings.HasSuffix(r.URL.Path, "/events"):
		writeJSON(w, now.events)
		if len(d.scenes) > 1 {
			d.scenes = d.scenes[1:]
		}
	default:
		writeJSON(w, Status{Machines: []MachineStatus{now.machine}})
	}
}

// TestFarewell reads the masters' words about a machine that ends.
func TestFarewell(t *testing.T) {
	node := true
	on := MachineStatus{ID: "i-1", Group: "minions", Name: "n", NodeReady: &node, Power: "on", Lifecycle: "Terminating:Wait"}
	off := MachineStatus{ID: "i-1", Group: "minions", Name: "n", NodeReady: &node, Power: "off"}
	event := func(reason, message string) NodeEvent {
		return NodeEvent{Name: strings.ToLower(reason) + "-1", Reason: reason, Message: message}
	}
	old := NodeEvent{Name: "evicted-0", Reason: "Evicted", Message: "all pods have left machine i-0"}
	evicting, blocked := event("Evicting", "its pods are evicted"), event("EvictionBlocked", "1 pods cannot be evicted now: d/p")
	for _, tt := range []struct {
		name   string
		scenes []scene
		want   Farewell
		said   string
	}{
		{"all have left", []scene{{on, []NodeEvent{old}, false}, {on, []NodeEvent{old, evicting}, false}, {off, []NodeEvent{old, evicting, event("Evicted", "all pods have left machine i-1")}, false}},
			Farewell{Moved: true}, "its pods are evicted|i-1 is Terminating:Wait|all pods have left machine i-1"},
		{"some have not", []scene{{on, nil, false}, {on, []NodeEvent{evicting, blocked}, false}, {off, []NodeEvent{evicting, blocked, event("EvictionIncomplete", "machine i-1 ends with 1 pods: d/p")}, false}},
			Farewell{Left: "machine i-1 ends with 1 pods: d/p"}, "its pods are evicted|1 pods cannot be evicted now: d/p|i-1 is Terminating:Wait|machine i-1 ends with 1 pods: d/p"},
		{"nobody says anything", []scene{{on, []NodeEvent{old}, false}, {off, []NodeEvent{old}, false}}, Farewell{Unknown: "the masters have said nothing of its pods: its hook's time was over before"}, ""},
		{"nobody can be asked", []scene{{off, nil, true}}, Farewell{Unknown: "connection refused"}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			home, err := NewHome(filepath.Join(t.TempDir(), "labs"), "lab")
			if err != nil {
				t.Fatal(err)
			}
			if err := home.make(); err != nil {
				t.Fatal(err)
			}
			daemon := &scripted{scenes: tt.scenes}
			wire, err := home.newWire(socketFile, daemon)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(wire.close)
			var said []string
			got, err := NewClient(home).End(t.Context(), on, func(text string) { said = append(said, text) })
			if err != nil || !daemon.ended {
				t.Fatalf("%v, ended %v", err, daemon.ended)
			}
			if got.Moved != tt.want.Moved || got.Left != tt.want.Left || got.Unknown != tt.want.Unknown {
				t.Errorf("%+v, want %+v", got, tt.want)
			}
			if text := strings.Join(said, "|"); text != tt.said {
				t.Errorf("said %s, want %s", text, tt.said)
			}
		})
	}
}

// TestEndInterrupted stops waiting, and the machine goes on ending.
func TestEndInterrupted(t *testing.T) {
	home, err := NewHome(filepath.Join(t.TempDir(), "labs"), "lab")
	if err != nil {
		t.Fatal(err)
	}
	if err := home.make(); err != nil {
		t.Fatal(err)
	}
	on := MachineStatus{ID: "i-1", Power: "on", Lifecycle: "Terminating:Wait"}
	wire, err := home.newWire(socketFile, &scripted{scenes: []scene{{machine: on}}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(wire.close)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if _, err := NewClient(home).End(ctx, on, func(string) {}); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "i-1 goes on ending") {
		t.Errorf("%v", err)
	}
}
