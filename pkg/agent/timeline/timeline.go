// Package timeline says where the time of a boot went.
//
// Its rule: every number is one of the kernel's monotonic clock, in milliseconds since the kernel began, as the
// service manager stamped it; nothing is measured by the one who reports it but its own marks. Build makes the
// timeline from what the manager knows, without asking anybody.
package timeline

import (
	"cmp"
	"encoding/json"
	"io"
	"path"
	"slices"
	"strings"
)

// Schema is the version of the JSON form.
const Schema = 1

// Timeline is one boot of one machine. Times are milliseconds since the kernel began, unless they say otherwise.
type Timeline struct {
	Schema int `json:"schema"`
	// Instance, Node, Roles and Boot say which boot of which machine; what is not known is empty.
	Instance string `json:"instance,omitempty"`
	Node     string `json:"node,omitempty"`
	Roles    string `json:"roles"`
	Boot     string `json:"boot,omitempty"`
	// Firmware and Loader are how long each took before the kernel; 0 where the firmware does not say.
	Firmware int64 `json:"firmware"`
	Loader   int64 `json:"loader"`
	// Userspace is when the service manager began, Ready when every role worked; 0 where it does not yet.
	Userspace int64  `json:"userspace"`
	Ready     int64  `json:"ready"`
	Units     []Span `json:"units"`
	Marks     []Mark `json:"marks"`
	Agent     Share  `json:"agent"`
}

// Span is one unit's start.
type Span struct {
	Unit string `json:"unit"`
	// Begin is when systemd began to start it, Exec when its program began (after what had to come before it), and
	// Active when it was there; 0 is not yet.
	Begin  int64 `json:"begin"`
	Exec   int64 `json:"exec"`
	Active int64 `json:"active"`
	// Waits are the agent's waits before the program.
	Waits []Wait `json:"waits,omitempty"`
	// Restarts is how often it was started again.
	Restarts uint32 `json:"restarts,omitempty"`
	// CPU is what all processes of the unit have used so far, in milliseconds.
	CPU int64 `json:"cpu"`
}

// Wait is a time in which a unit waited for others.
type Wait struct {
	Begin int64 `json:"begin"`
	End   int64 `json:"end"`
}

// Mark is a moment.
type Mark struct {
	Name string `json:"name"`
	At   int64  `json:"at"`
}

// Share is the agent's own part of the boot.
type Share struct {
	// Work is for how long at least one of its commands ran that do something (userdata, certs, node, addons);
	// Wait for how long at least one ran that waits for other machines (wait, bootstrap).
	Work int64 `json:"work"`
	Wait int64 `json:"wait"`
	// CPU is what the units used whose program it is, in milliseconds.
	CPU int64 `json:"cpu"`
}

// Boot is what the manager says of the whole boot, in microseconds of its properties of these names
// (org.freedesktop.systemd1(5)).
type Boot struct {
	Firmware, Loader, Userspace uint64
}

// Unit is what the manager says of one unit. Times are microseconds of the monotonic clock, 0 for never.
type Unit struct {
	Name string
	// Load, Active and Sub are its states, Result how it ended, Status its own words.
	Load, Active, Sub, Result, Status string
	// Begin, Exec, Exit and Active are InactiveExitTimestampMonotonic and so on.
	Begin, ExecStart, ExecExit, ActiveEnter uint64
	Commands                                []Command
	// Refused says that an Assert…= of the unit did not hold.
	Refused bool
	// CPU is in nanoseconds.
	CPU      uint64
	Restarts uint32
}

// Command is one run of an ExecStartPre= or ExecStart= line.
type Command struct {
	Args        []string
	Main        bool
	Start, Stop uint64
}

// Machine says whose timeline it is.
type Machine struct {
	Instance, Node, Roles, Boot string
}

// Program is the agent, as the units name it.
const Program = "hardtack-agent"

// waiting are the agent's verbs that wait for other machines. ready and controller run beside the boot, and are
// no part of it.
var waiting, beside = []string{"wait", "bootstrap"}, []string{"ready", "controller", "timeline"}

// Build makes the timeline as of now, in microseconds. Units that have not begun are left out.
func Build(m Machine, b Boot, units []Unit, marks []Mark, now uint64) Timeline {
	t := Timeline{Schema: Schema, Instance: m.Instance, Node: m.Node, Roles: m.Roles, Boot: m.Boot,
		Userspace: ms(b.Userspace), Units: []Span{}, Marks: []Mark{}}
	// Both count backwards from the kernel's beginning, the firmware's from its own.
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

// verbOf returns the verb of a run of the agent, "" for any other program.
func verbOf(c Command) string {
	if len(c.Args) < 2 || path.Base(c.Args[0]) != Program {
		return ""
	}
	return c.Args[1]
}

// union is for how long at least one of the spans lasted.
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

// mark is what the line begins with.
const mark = `{"hardtack":"timeline",`

// Line is the timeline as it stands in the journal and on the console, without the newline.
func (t Timeline) Line() string {
	text, err := json.Marshal(t)
	if err != nil {
		panic(err) // numbers and strings always marshal
	}
	return mark + string(text[1:])
}

// Write writes the line.
func (t Timeline) Write(w io.Writer) error {
	_, err := io.WriteString(w, t.Line()+"\n")
	return err
}

// Parse finds the timeline in a line of a console, which may have others' words before and after it.
func Parse(line string) (Timeline, bool) {
	i := strings.Index(line, mark)
	if i < 0 {
		return Timeline{}, false
	}
	var t Timeline
	err := json.NewDecoder(strings.NewReader(line[i:])).Decode(&t)
	return t, err == nil && t.Schema == Schema
}
