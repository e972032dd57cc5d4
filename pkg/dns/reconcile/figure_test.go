package reconcile_test

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/golden"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/figure"
	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/record"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

//go:generate go test -count=1 -run TestReplacementFigure . -update

// The replacement that the figure shows, and how long it is looked at.
const (
	figureEnds   = 20 * time.Second
	figureStarts = 25 * time.Second
	figureTime   = 180 * time.Second
	figureStep   = 100 * time.Millisecond
)

// span is how long something was so, in seconds.
type span struct {
	what     string
	from, to float64
}

// life is what became of a machine.
type life struct {
	id, address       string
	states, published []span
}

// extend makes the last span longer, or begins one.
func extend(list []span, what string, at float64) []span {
	if n := len(list); n > 0 && list[n-1].what == what && list[n-1].to+2*figureStep.Seconds() > at {
		list[n-1].to = at
		return list
	}
	return append(list, span{what, at, at})
}

// replacement runs the simulator once, without faults: three masters, one of which is ended and replaced. The function is
// called for each event that AWS makes, and every minute.
func replacement() (lives []*life, calls []float64, violations []string) {
	w := newWorld(1)
	s := &sim{world: w, make: asDesigned, zone: newZone()}
	s.left, s.since, s.ended = map[string]time.Time{}, map[string]time.Time{}, map[string]string{}
	s.region = &region{world: w, hookTime: 2 * time.Minute}
	s.region.groups = []record.Group{{Name: "demo-masters", Cluster: cluster, Role: role.Masters, Desired: 3}}
	for range 3 {
		s.region.launch(0, record.InService)
	}
	seconds := func() float64 { return w.now.Sub(epoch).Seconds() }
	s.region.changed = func(told bool) {
		if told {
			s.after(time.Second, func() { s.invoke("event", 0) })
		}
	}
	w.trace = func(line string) {
		if strings.Contains(line, " ends: ") && slices.Contains([]string{"event", "sweep", "again"}, firstWord(line)) {
			calls = append(calls, seconds())
		}
	}
	for at := time.Duration(0); at < figureTime; at += time.Minute {
		w.after(at, func() { s.invoke("sweep", 0) })
	}
	w.after(figureEnds, func() { s.region.terminate("i-0001") })
	w.after(figureStarts, func() { s.region.launch(0, "Pending") })
	known := map[string]*life{}
	for at := time.Duration(0); at < figureTime; at += figureStep {
		w.after(at, func() {
			published := all(s.published())
			for _, m := range s.region.groups[0].Members {
				l := known[m.InstanceID]
				if l == nil {
					l = &life{id: m.InstanceID, address: m.Private.String()}
					known[m.InstanceID] = l
					lives = append(lives, l)
				}
				l.states = extend(l.states, string(m.Lifecycle), seconds())
			}
			for _, l := range lives {
				if published[l.address] {
					l.published = extend(l.published, "", seconds())
				}
			}
		})
	}
	w.run(epoch.Add(figureTime))
	return lives, calls, s.violations
}

// firstWord is the name of the call that a line of the trace is about, without its number.
func firstWord(line string) string {
	var seconds float64
	var name string
	if _, err := fmt.Sscan(line, &seconds, &name); err != nil {
		return ""
	}
	before, _, _ := strings.Cut(name, "-")
	return before
}

// TestReplacementFigure draws lambda/replacement.svg from a run of the function's own code in the simulator.
func TestReplacementFigure(t *testing.T) {
	lives, calls, violations := replacement()
	if len(violations) > 0 {
		t.Fatal(violations)
	}
	if len(lives) != 4 || len(calls) < 5 {
		t.Fatalf("%d machines and %d calls: the figure would show no replacement", len(lives), len(calls))
	}
	golden.Assert(t, string(drawReplacement(lives, calls)), "../../../../lambda/replacement.svg")
}

func drawReplacement(lives []*life, calls []float64) []byte {
	const left, width, top, row = 190.0, 720.0, 106.0, 54.0
	x := func(s float64) float64 { return left + s/figureTime.Seconds()*width }
	bottom := top + row*float64(len(lives)+1)
	f := figure.New(left+width+30, bottom+56, "A master is ended and replaced: the machines, and masters.demo.k8s")
	colours := map[string]string{"Pending": figure.Grey, string(record.PendingWait): figure.Grey, string(record.InService): figure.Green,
		string(record.TerminatingWait): figure.Orange, string(record.TerminatingProceed): figure.Purple}
	f.Legend(42, [2]string{figure.Grey, "starts"}, [2]string{figure.Green, "in service"}, [2]string{figure.Orange, "held by its hook"},
		[2]string{figure.Purple, "ends"}, [2]string{figure.Sky, "its address is in DNS"})
	f.Text(20, 76, figure.Muted, fmt.Sprintf("one run of the function's code in virtual time; resolvers keep an answer for %g s, and a hook is held for %g s more", record.DefaultTTL.Seconds(), testSettle.Seconds()))
	f.Axis(figureTime.Seconds(), top-8, bottom, x)
	for i, l := range lives {
		y := top + row*float64(i)
		f.Text(20, y+14, figure.Plain, l.id)
		f.Text(20, y+31, figure.Muted, l.address)
		for _, s := range l.states {
			f.Rect(x(s.from), y, x(s.to)-x(s.from), 18, cmp.Or(colours[s.what], figure.Grey), fmt.Sprintf("%s: %.1f s to %.1f s", s.what, s.from, s.to))
		}
		for _, s := range l.published {
			f.Rect(x(s.from), y+20, x(s.to)-x(s.from), 12, figure.Sky, fmt.Sprintf("in DNS: %.1f s to %.1f s", s.from, s.to))
		}
	}
	y := top + row*float64(len(lives))
	f.Text(20, y+14, figure.Plain, "calls that ended")
	for _, at := range calls {
		f.Line(x(at), y, x(at), y+18, figure.Alarm)
	}
	f.Middle(left+width/2, bottom+44, figure.Muted, "seconds; the function is called for each event, again where it asks for it, and every minute")
	return f.Bytes()
}
