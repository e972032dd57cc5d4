package lab

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/figure"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/timeline"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// Plot is the data of a diagram of how the lab's machines booted.
type Plot struct {
	Title string `json:"title"`
	// Seconds is the end of the time axis, counted from the launch of the first machine.
	Seconds float64   `json:"seconds"`
	Rows    []PlotRow `json:"rows"`
}

// PlotRow is the row of one machine.
type PlotRow struct {
	Label string `json:"label"`
	// Bars follow each other without a gap.
	Bars []PlotBar `json:"bars"`
	// Stuck is the unit that keeps the machine from working, and the reason; empty if it works or has ended.
	Stuck string `json:"stuck,omitempty"`
	// Ready is when the machine worked, in seconds; nil if it has not.
	Ready *float64 `json:"ready,omitempty"`
	// Ended is when its power was cut, in seconds; nil while it is on.
	Ended *float64 `json:"ended,omitempty"`
}

// PlotBar is one boot phase: it begins when the previous phase was reached and ends when its own was.
type PlotBar struct {
	Phase timeline.Phase `json:"phase"`
	From  float64        `json:"from"`
	To    float64        `json:"to"`
}

// NewPlot computes the diagram of a lab's machines; with all, of those that have ended too.
func NewPlot(s Status, all bool) Plot {
	p := Plot{Title: fmt.Sprintf("Cluster %s in lab %s: from power to ready", s.Cluster, s.Lab), Rows: []PlotRow{}}
	var first time.Time
	for _, m := range s.Machines {
		if !m.PoweredOn.IsZero() && (first.IsZero() || m.PoweredOn.Before(first)) {
			first = m.PoweredOn
		}
	}
	for _, m := range s.Machines {
		if m.PoweredOn.IsZero() || m.Power == "off" && !all {
			continue
		}
		row := rowOf(m, first)
		p.Rows = append(p.Rows, row)
		for _, b := range row.Bars {
			p.Seconds = max(p.Seconds, b.To)
		}
		if row.Ended != nil {
			p.Seconds = max(p.Seconds, *row.Ended)
		}
	}
	p.Seconds = max(math.Ceil(p.Seconds*1.12), 1)
	return p
}

func rowOf(m MachineStatus, first time.Time) PlotRow {
	start := m.PoweredOn.Sub(first).Seconds()
	row := PlotRow{Label: fmt.Sprintf("%s %s %s", m.Group, m.Address, m.ID), Bars: []PlotBar{}}
	reached := slices.Clone(m.Reached)
	slices.SortStableFunc(reached, func(a, b Reached) int { return cmp.Compare(a.Seconds, b.Seconds) })
	from := start
	for _, r := range reached {
		at := start + r.Seconds
		if r.Phase != timeline.PhasePower {
			row.Bars = append(row.Bars, PlotBar{Phase: r.Phase, From: from, To: at})
		}
		if r.Phase == timeline.PhaseReady {
			row.Ready = &at
		}
		from = at
	}
	if row.Ready == nil && m.Ended.IsZero() && len(m.Failures) > 0 {
		f := m.Failures[len(m.Failures)-1]
		row.Stuck = fmt.Sprintf("%s: %s", f.Unit, f.Reason)
	}
	if !m.Ended.IsZero() {
		at := m.Ended.Sub(first).Seconds()
		row.Ended = &at
	}
	return row
}

// The plot's measures, in pixels.
const (
	plotLabel  = 300
	plotWidth  = 760
	plotRow    = 30
	plotBar    = 20
	plotTop    = 86
	plotMargin = 20
	plotAxis   = 34
)

// plotColours are the phases' colours.
var plotColours = map[timeline.Phase]string{
	timeline.PhaseKernel: figure.Grey, timeline.PhaseSystemd: figure.Sky, timeline.PhaseUserData: figure.Orange, timeline.PhaseCerts: figure.Yellow,
	timeline.PhaseEtcd: figure.Purple, timeline.PhaseAPI: figure.Blue, timeline.PhaseKubelet: figure.Red, timeline.PhaseReady: figure.Green,
}

// WriteSVG draws the diagram.
func (p Plot) WriteSVG(out io.Writer) error {
	bottom := float64(plotTop + plotRow*len(p.Rows))
	f := figure.New(plotLabel+plotWidth+2*plotMargin, bottom+plotAxis+plotMargin, p.Title)
	var entries [][2]string
	for _, phase := range timeline.Phases(role.All()) {
		if colour, ok := plotColours[phase]; ok {
			entries = append(entries, [2]string{colour, "until " + string(phase)})
		}
	}
	x := f.Legend(42, entries...)
	f.Line(x+4, 42, x+4, 56, figure.Alarm)
	f.Text(x+12, 54, figure.Plain, "off")
	f.Axis(p.Seconds, plotTop-6, bottom, p.x)
	f.Middle(p.x(p.Seconds/2), bottom+plotAxis+6, figure.Muted, "seconds after the first machine was powered on")
	for i, r := range p.Rows {
		p.row(f, float64(plotTop+plotRow*i), r)
	}
	_, err := f.WriteTo(out)
	return err
}

// x converts seconds to a horizontal position.
func (p Plot) x(seconds float64) float64 {
	return plotMargin + plotLabel + seconds/p.Seconds*plotWidth
}

func (p Plot) row(f *figure.Figure, y float64, r PlotRow) {
	f.Text(plotMargin, y+15, figure.Plain, r.Label)
	end := 0.0
	for _, b := range r.Bars {
		f.Rect(p.x(b.From), y, p.x(b.To)-p.x(b.From), plotBar, plotColours[b.Phase], fmt.Sprintf("%s: %.1f s to %.1f s", b.Phase, b.From, b.To))
		end = b.To
	}
	switch {
	case r.Ready != nil:
		p.beside(f, *r.Ready, y, figure.Plain, fmt.Sprintf("ready, %.1f s", *r.Ready-p.start(r)))
	case r.Stuck != "":
		p.beside(f, end, y, figure.Alarm, r.Stuck)
	}
	if r.Ended != nil {
		f.Line(p.x(*r.Ended), y-3, p.x(*r.Ended), y+plotBar+3, figure.Alarm)
	}
}

// beside writes what became of a machine behind its bars, or below their end where there is no room behind them.
func (p Plot) beside(f *figure.Figure, at, y float64, class, text string) {
	if x := p.x(at) + 6; x+6.5*float64(len(text)) < plotMargin+plotLabel+plotWidth+plotMargin {
		f.Text(x, y+15, class, text)
		return
	}
	f.End(plotMargin+plotLabel+plotWidth+plotMargin-4, y+plotRow-1, class, text)
}

// start returns when the row's machine got its power, in seconds.
func (p Plot) start(r PlotRow) float64 {
	if len(r.Bars) == 0 {
		return 0
	}
	return r.Bars[0].From
}
