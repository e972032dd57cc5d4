package lab

import (
	"cmp"
	"encoding/xml"
	"fmt"
	"io"
	"math"
	"slices"
	"time"

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
	if !m.Ended.IsZero() {
		at := m.Ended.Sub(first).Seconds()
		row.Ended = &at
	}
	return row
}

// The plot's measures, in SVG's units.
const (
	plotLabel  = 330
	plotWidth  = 760
	plotRow    = 30
	plotBar    = 20
	plotTop    = 86
	plotMargin = 20
	plotAxis   = 34
)

// plotColours are the phases' colours, which people with red-green colour blindness can distinguish (Okabe and Ito's
// palette).
var plotColours = map[timeline.Phase]string{
	timeline.PhaseKernel: "#999999", timeline.PhaseSystemd: "#56b4e9", timeline.PhaseUserData: "#e69f00", timeline.PhaseCerts: "#f0e442",
	timeline.PhaseEtcd: "#cc79a7", timeline.PhaseAPI: "#0072b2", timeline.PhaseKubelet: "#d55e00", timeline.PhaseReady: "#009e73",
}

// svg writes the drawing, and keeps the first error.
type svg struct {
	out io.Writer
	err error
}

func (s *svg) printf(format string, args ...any) {
	if s.err == nil {
		_, s.err = fmt.Fprintf(s.out, format, args...)
	}
}

// text draws text, escaped.
func (s *svg) text(x, y float64, attributes, text string) {
	s.printf(`<text x="%.1f" y="%.1f" %s>`, x, y, attributes)
	if s.err == nil {
		s.err = xml.EscapeText(s.out, []byte(text))
	}
	s.printf("</text>\n")
}

// WriteSVG draws the diagram.
func (p Plot) WriteSVG(out io.Writer) error {
	s := &svg{out: out}
	height := plotTop + plotRow*len(p.Rows) + plotAxis + plotMargin
	width := plotLabel + plotWidth + 2*plotMargin
	s.printf(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" font-family="sans-serif" font-size="13">`+"\n", width, height, width, height)
	s.printf(`<rect width="%d" height="%d" fill="#ffffff"/>`+"\n", width, height)
	s.text(plotMargin, 28, `font-size="17" font-weight="bold"`, p.Title)
	p.legend(s)
	p.axis(s)
	for i, r := range p.Rows {
		p.row(s, float64(plotTop+plotRow*i), r)
	}
	s.printf("</svg>\n")
	return s.err
}

// x converts seconds to a horizontal position.
func (p Plot) x(seconds float64) float64 {
	return plotMargin + plotLabel + seconds/p.Seconds*plotWidth
}

func (p Plot) legend(s *svg) {
	x := float64(plotMargin)
	for _, phase := range timeline.Phases(role.All()) {
		colour, ok := plotColours[phase]
		if !ok {
			continue
		}
		s.printf(`<rect x="%.1f" y="42" width="14" height="14" fill="%s" stroke="#333333" stroke-width="0.5"/>`+"\n", x, colour)
		s.text(x+20, 54, "", "until "+string(phase))
		x += 38 + 7.5*float64(len("until ")+len(phase))
	}
}

// axis draws the time axis, with at most a dozen labels at round numbers.
func (p Plot) axis(s *svg) {
	step := 1.0
	for _, candidate := range []float64{1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1800, 3600} {
		step = candidate
		if p.Seconds/candidate <= 12 {
			break
		}
	}
	bottom := float64(plotTop + plotRow*len(p.Rows))
	for at := 0.0; at <= p.Seconds; at += step {
		s.printf(`<line x1="%.1f" y1="%d" x2="%.1f" y2="%.1f" stroke="#cccccc" stroke-width="1"/>`+"\n", p.x(at), plotTop-6, p.x(at), bottom+4)
		s.text(p.x(at), bottom+20, `text-anchor="middle" fill="#333333"`, fmt.Sprintf("%g s", at))
	}
	s.text(p.x(p.Seconds/2), bottom+plotAxis+6, `text-anchor="middle" fill="#333333"`, "seconds after the first machine was powered on")
}

func (p Plot) row(s *svg, y float64, r PlotRow) {
	s.text(plotMargin, y+15, "", r.Label)
	for _, b := range r.Bars {
		s.printf(`<rect x="%.1f" y="%.1f" width="%.1f" height="%d" fill="%s" stroke="#333333" stroke-width="0.5"><title>%s: %.1f s to %.1f s</title></rect>`+"\n",
			p.x(b.From), y, math.Max(p.x(b.To)-p.x(b.From), 0.5), plotBar, plotColours[b.Phase], b.Phase, b.From, b.To)
	}
	if r.Ready != nil {
		s.text(p.x(*r.Ready)+5, y+15, `font-size="12"`, fmt.Sprintf("ready, %.1f s", *r.Ready-p.start(r)))
	}
	if r.Ended != nil {
		s.printf(`<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" stroke="#c00000" stroke-width="3"><title>off at %.1f s</title></line>`+"\n", p.x(*r.Ended), y-3, p.x(*r.Ended), y+plotBar+3, *r.Ended)
	}
}

// start returns when the row's machine got its power, in seconds.
func (p Plot) start(r PlotRow) float64 {
	if len(r.Bars) == 0 {
		return 0
	}
	return r.Bars[0].From
}
