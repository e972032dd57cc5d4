package reconcile

import (
	"context"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/problem"
	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/record"
)

// Report describes one call of Sync. It is valid as far as the call got, also when Sync returns an error.
type Report struct {
	Cluster string `json:"cluster"`
	// Changed is true when this call's batch was committed.
	Changed bool `json:"changed"`
	// Values is the number of values of each record, as in "masters.demo.k8s. A": 3.
	Values map[string]int `json:"values,omitempty"`
	// Conflicts, Throttled and Unknown count the retries by their cause.
	Conflicts int   `json:"conflicts"`
	Throttled int   `json:"throttled"`
	Unknown   int   `json:"unknown_outcomes"`
	Calls     Calls `json:"calls"`
	// AgeSeconds is the time since the last change of the records; 0 if they never changed.
	AgeSeconds float64 `json:"age_seconds"`
	// Unannounced counts the addresses that a sweep changed: events get lost, and the sweep had to correct that.
	Unannounced int `json:"unannounced"`
	// Hooks describes the machines that wait to be terminated.
	Hooks []HookReport `json:"hooks,omitempty"`
	// CallAgainAt is when to call Sync again because a machine's hook will be due, or a group that has vanished will be let
	// go; zero is never.
	CallAgainAt time.Time    `json:"again,omitzero"`
	Problems    problem.List `json:"problems,omitempty"`
}

// Calls counts calls of the interfaces. One reading may take an adapter several requests (pages).
type Calls struct {
	ZoneReads  int `json:"zone_reads"`
	ZoneWrites int `json:"zone_writes"`
	FleetReads int `json:"fleet_reads"`
	Hooks      int `json:"hooks"`
}

// Total is the sum of all calls.
func (c Calls) Total() int { return c.ZoneReads + c.ZoneWrites + c.FleetReads + c.Hooks }

// HookState is the state of a machine that waits to be terminated.
type HookState string

// The states. A Held machine is the last of its record, which is kept so that the name does not
// become empty: its hook ends by its own time limit, or when another machine is in the record.
const (
	HookDone    HookState = "done"
	HookWaiting HookState = "waiting"
	HookHeld    HookState = "held"
	HookFailed  HookState = "failed"
)

// HookReport is one machine in Terminating:Wait.
type HookReport struct {
	Group      string    `json:"group"`
	InstanceID string    `json:"instance_id"`
	State      HookState `json:"state"`
	// Due is when the hook may be completed at the earliest: TTL and Propagation after the address was removed.
	Due time.Time `json:"due,omitzero"`
}

// Metrics receives the report of every call of Sync.
type Metrics interface {
	// Observe is called once at the end of a call, with its error. It must not block.
	Observe(ctx context.Context, r Report, err error)
}

// Event is an event that triggered a call of Sync. Its content is not trusted; it only says that the call is not the
// scheduled sweep.
type Event struct {
	// At is when the event happened; zero is unknown.
	At time.Time `json:"at,omitzero"`
}

// values counts each set's values for a report.
func values(sets []record.Set) map[string]int {
	m := make(map[string]int, len(sets))
	for _, s := range sets {
		m[s.Name+" "+s.Type] = len(s.Values)
	}
	return m
}

// changedAddresses counts the addresses that are in one of the two and not in the other. The placeholder is no machine's.
func changedAddresses(have, want []record.Set, placeholder string) int {
	before, after, n := addresses(have), addresses(want), 0
	delete(before, placeholder)
	delete(after, placeholder)
	for a := range before {
		if after[a] == 0 {
			n++
		}
	}
	for a := range after {
		if before[a] == 0 {
			n++
		}
	}
	return n
}
