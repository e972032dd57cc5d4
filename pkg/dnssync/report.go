package dnssync

import (
	"context"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/problem"
	"github.com/hardtack/packer-plugin-hardtack/pkg/record"
)

// Report says what one call of Sync found and did. It is filled as far as the call came, also when
// Sync returns an error.
type Report struct {
	Cluster string `json:"cluster"`
	// Changed is true when this call's batch was committed.
	Changed bool `json:"changed"`
	// Values is how many values each record has as far as this call knows: "masters.demo.k8s. A": 3.
	Values map[string]int `json:"values,omitempty"`
	// Conflicts counts the writes that another call overtook, and what else made this one try again.
	Conflicts int   `json:"conflicts"`
	Throttled int   `json:"throttled"`
	Unknown   int   `json:"unknown_outcomes"`
	Calls     Calls `json:"calls"`
	// AgeSeconds is how long ago the records last changed; 0 when they never did.
	AgeSeconds float64 `json:"age_seconds"`
	// Unannounced counts the addresses that changed although no event had asked for this call: events
	// get lost, and this is how many the sweep had to make good.
	Unannounced int `json:"unannounced"`
	// Hooks are the machines that wait to be terminated, and what became of each.
	Hooks []HookReport `json:"hooks,omitempty"`
	// Again is when to call Sync again because a machine's hook will be due; zero when none waits.
	Again    time.Time    `json:"again,omitzero"`
	Problems problem.List `json:"problems,omitempty"`
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

// HookState is what became of a machine that waits to be terminated.
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
	// Due is from when on the hook may be completed: TTL and Settle after the address left.
	Due time.Time `json:"due,omitzero"`
}

// Metrics takes the figures of every call of Sync.
type Metrics interface {
	// Observe is called once at the end of a call, with its error. It must not block.
	Observe(ctx context.Context, r Report, err error)
}

// Poke is an event that asked for a call of Sync. What it says is not believed; it only tells that
// the call was not the schedule's own.
type Poke struct {
	// At is when the event happened; zero when it does not say.
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

// moved counts the addresses that are in one of the two and not in the other.
func moved(have, want []record.Set) int {
	before, after, n := addresses(have), addresses(want), 0
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
