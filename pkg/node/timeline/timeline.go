// Package timeline says where the time of a boot went.
//
// Its rule: every number is one of the kernel's monotonic clock, in milliseconds since the kernel began, as recorded by
// the service manager. The agent measures nothing itself except its own marks. Build computes the timeline from the
// manager's data without further queries.
package timeline

import (
	"cmp"
	"encoding/json"
	"io"
	"path"
	"slices"
)

// Schema is the version of the JSON form.
const Schema = 1

// Timeline is the timeline of one boot of one machine. Times are in milliseconds since the kernel began, unless a field
// says otherwise.
type Timeline struct {
	Schema int `json:"schema"`
	// Instance, Node, Roles and Boot identify the machine and the boot; an unknown one is empty.
	Instance string `json:"instance,omitempty"`
	Node     string `json:"node,omitempty"`
	Roles    string `json:"roles"`
	Boot     string `json:"boot,omitempty"`
	// RootHash is that of a sealed root, in hexadecimal digits; empty is a root that is written to.
	RootHash string `json:"root_hash,omitempty"`
	// Firmware and Loader are how long each took before the kernel; 0 if the firmware does not record it.
	Firmware int64 `json:"firmware"`
	Loader   int64 `json:"loader"`
	// Userspace is when the service manager began, Ready when every role worked; 0 if they do not work yet.
	Userspace int64  `json:"userspace"`
	Ready     int64  `json:"ready"`
	Units     []Span `json:"units"`
	Marks     []Mark `json:"marks"`
	Agent     Share  `json:"agent"`
}

// Span is the start of one unit.
type Span struct {
	Unit string `json:"unit"`
	// Begin is when systemd began to start the unit, Exec when its program began, after its dependencies, and Active when
	// the unit became active; 0 is not yet.
	Begin  int64 `json:"begin"`
	Exec   int64 `json:"exec"`
	Active int64 `json:"active"`
	// Waits are the times for which the agent waited before the program began.
	Waits []Wait `json:"waits,omitempty"`
	// Restarts is the number of restarts.
	Restarts uint32 `json:"restarts,omitempty"`
	// CPU is the time used by all processes of the unit so far, in milliseconds.
	CPU int64 `json:"cpu"`
}

// Wait is an interval in which a unit waited for others.
type Wait struct {
	Begin int64 `json:"begin"`
	End   int64 `json:"end"`
}

// Mark is a named moment.
type Mark struct {
	Name string `json:"name"`
	At   int64  `json:"at"`
}

// Share is the share of the agent in the boot.
type Share struct {
	// Work is for how long at least one of its working commands ran (userdata, certs, node, addons), Wait for how long at
	// least one ran that waits for other machines (wait, bootstrap).
	Work int64 `json:"work"`
	Wait int64 `json:"wait"`
	// CPU is the time used by the units whose program is the agent, in milliseconds.
	CPU int64 `json:"cpu"`
}

// Boot has the times of the whole boot, in microseconds, as the manager's properties of these names have them
// (org.freedesktop.systemd1(5)).
type Boot struct {
	Firmware, Loader, Userspace uint64
}

// Unit is the manager's data about one unit. Times are in microseconds of the monotonic clock, 0 is never.
type Unit struct {
	Name string
	// Load, Active and Sub are its states, Result is how it ended, Status the status text that it sent.
	Load, Active, Sub, Result, Status string
	// Begin, ExecStart, ExecExit and ActiveEnter are InactiveExitTimestampMonotonic and so on.
	Begin, ExecStart, ExecExit, ActiveEnter uint64
	Commands                                []Command
	// Refused reports that an Assert…= of the unit failed, Skipped that a Condition…= was not met when it was last looked at.
	Refused, Skipped bool
	// Job is the number of the job that waits or runs for the unit; 0 is none.
	Job uint32
	// CPU is in nanoseconds.
	CPU      uint64
	Restarts uint32
	// Exit is ExecMainStatus: the exit status of the last run that ended, or the signal that ended it.
	Exit int32
}

// Command is one run of an ExecStartPre= or ExecStart= line.
type Command struct {
	Args        []string
	Main        bool
	Start, Stop uint64
}

// Machine identifies the machine and the boot of a timeline.
type Machine struct {
	Instance, Node, Roles, Boot, RootHash string
}

// Program is the file name of the agent in the units, and Reader that of the program that reads the user data.
const (
	Program = "hardtack-agent"
	Reader  = "hardtack-userdata"
)

// waiting are the agent's verbs that wait for other machines. Those in beside run in parallel to the boot and do not
// count.
var waiting, beside = []string{"wait", "bootstrap"}, []string{"ready", "controller", "timeline"}

// Build builds the timeline as of now, in microseconds. It omits units that have not begun.
func Build(m Machine, b Boot, units []Unit, marks []Mark, now uint64) Timeline {
	t := Timeline{Schema: Schema, Instance: m.Instance, Node: m.Node, Roles: m.Roles, Boot: m.Boot, RootHash: m.RootHash,
		Userspace: ms(b.Userspace), Units: []Span{}, Marks: []Mark{}}
	// Both are times before the start of the kernel: that of the firmware includes the loader.
	if b.Firmware > b.Loader {
		t.Firmware = ms(b.Firmware - b.Loader)
	}
	t.Loader = ms(b.Loader)
	var work, wait []Wait
	for _, u := range units {
		if u.Begin == 0 {
			continue
		}
		s := Span{Unit: u.Name, Begin: ms(u.Begin), Exec: ms(u.ExecStart), Active: ms(u.ActiveEnter), Restarts: u.Restarts, CPU: int64(u.CPU / 1e6)}
		for _, c := range u.Commands {
			verb := verbOf(c)
			span := Wait{ms(c.Start), ms(cmp.Or(c.Stop, now))}
			switch {
			case verb == "" || c.Start == 0 || slices.Contains(beside, verb):
				continue
			case slices.Contains(waiting, verb):
				wait = append(wait, span)
				if !c.Main {
					s.Waits = append(s.Waits, span)
				}
			default:
				work = append(work, span)
			}
			if c.Main {
				t.Agent.CPU += s.CPU
			}
		}
		t.Units = append(t.Units, s)
	}
	slices.SortStableFunc(t.Units, func(a, b Span) int { return cmp.Or(cmp.Compare(a.Begin, b.Begin), cmp.Compare(a.Unit, b.Unit)) })
	t.Marks = append(t.Marks, marks...)
	slices.SortStableFunc(t.Marks, func(a, b Mark) int { return cmp.Compare(a.At, b.At) })
	t.Agent.Work, t.Agent.Wait = union(work), union(wait)
	return t
}

// verbOf returns the verb if the command is a run of the agent, "userdata" for the reader, and "" for any other program.
func verbOf(c Command) string {
	switch {
	case len(c.Args) > 0 && path.Base(c.Args[0]) == Reader:
		return "userdata"
	case len(c.Args) > 1 && path.Base(c.Args[0]) == Program:
		return c.Args[1]
	}
	return ""
}

// union is the time covered by at least one of the spans.
func union(spans []Wait) int64 {
	slices.SortFunc(spans, func(a, b Wait) int { return cmp.Compare(a.Begin, b.Begin) })
	var sum, end int64
	for _, s := range spans {
		sum += max(0, s.End-max(s.Begin, end))
		end = max(end, s.End)
	}
	return sum
}

func ms(usec uint64) int64 { return int64(usec / 1000) }

// mark begins the line of a timeline.
const mark = `{"hardtack":"timeline",`

// Line is the timeline as a line of the journal and the console, without the newline.
func (t Timeline) Line() string { return line(mark, t) }

// Write writes the line to w.
func (t Timeline) Write(w io.Writer) error {
	_, err := io.WriteString(w, t.Line()+"\n")
	return err
}

// Find finds a timeline of any schema in a line of a console, which may have other text before and after it.
func Find(line string) (json.RawMessage, bool) { return find(line, mark) }

// Parse finds a timeline of this schema in a line of a console.
func Parse(line string) (Timeline, bool) {
	var t Timeline
	raw, ok := Find(line)
	ok = ok && json.Unmarshal(raw, &t) == nil && t.Schema == Schema
	return t, ok
}
