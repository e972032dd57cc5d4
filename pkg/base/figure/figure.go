// Package figure draws figures as SVG, in colours that are legible on light and dark pages, and for people with red-green
// colour blindness (Okabe and Ito's palette).
//
// It writes a dozen lines of SVG by hand: plotting libraries draw pixels or fixed colours, and none of them writes a style that
// follows the reader's colour scheme.
package figure

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"io"
)

// The colours of bars and boxes, on which text is black.
const (
	Grey   = "#999999"
	Sky    = "#56b4e9"
	Orange = "#e69f00"
	Yellow = "#f0e442"
	Purple = "#cc79a7"
	Blue   = "#0072b2"
	Red    = "#d55e00"
	Green  = "#009e73"
)

// The classes of text and lines; the style gives each a colour for both schemes.
const (
	Title  = "title"
	Plain  = "plain"
	Muted  = "muted"
	Alarm  = "alarm"
	Inside = "inside" // of a box or bar
	Grid   = "grid"
	Edge   = "edge"
)

const style = `<style>
.ground{fill:#ffffff} text{font:13px sans-serif;fill:#1f2328} .title{font-size:17px;font-weight:bold} .muted{fill:#59636e;font-size:12px}
.alarm{fill:#b42318;font-size:12px} .inside{fill:#000000;font-size:12px} line,path{fill:none;stroke-width:1} .grid{stroke:#d1d9e0} .edge{stroke:#59636e}
line.alarm{stroke:#b42318;stroke-width:3} rect{stroke:#59636e;stroke-width:0.5} .head{fill:#59636e;stroke:none}
@media (prefers-color-scheme: dark) { .ground{fill:#0d1117} text{fill:#f0f6fc} .muted{fill:#9198a1} .alarm{fill:#ff7b72} .inside{fill:#000000}
.grid{stroke:#3d444d} .edge{stroke:#9198a1} line.alarm{stroke:#ff7b72} .head{fill:#9198a1} }
</style>
<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto"><path class="head" d="M0,0 L8,4 L0,8 z"/></marker></defs>
`

// Figure is a figure that is being drawn; use New.
type Figure struct{ out bytes.Buffer }

// New returns a figure of a size in pixels, with a title. The same calls give the same bytes.
func New(width, height float64, title string) *Figure {
	f := &Figure{}
	f.printf(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %g %g" width="%g" height="%g">`+"\n%s", width, height, width, height, style)
	f.printf(`<rect class="ground" width="%g" height="%g" style="stroke:none"/>`+"\n", width, height)
	f.Text(20, 28, Title, title)
	return f
}

func (f *Figure) printf(format string, args ...any) { fmt.Fprintf(&f.out, format, args...) }

func escaped(text string) string {
	var b bytes.Buffer
	_ = xml.EscapeText(&b, []byte(text)) // writes to memory
	return b.String()
}

// Rect draws a rectangle in a colour; tip is what a pointer on it shows, if it is not empty.
func (f *Figure) Rect(x, y, width, height float64, fill, tip string) {
	if tip != "" {
		tip = "<title>" + escaped(tip) + "</title>"
	}
	f.printf(`<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" fill="%s">%s</rect>`+"\n", x, y, max(width, 0.5), height, fill, tip)
}

// Text writes text from x on, with its baseline at y.
func (f *Figure) Text(x, y float64, class, text string) { f.anchored(x, y, class, "start", text) }

// Middle writes text around x, End before it.
func (f *Figure) Middle(x, y float64, class, text string) { f.anchored(x, y, class, "middle", text) }

// End writes text that ends at x.
func (f *Figure) End(x, y float64, class, text string) { f.anchored(x, y, class, "end", text) }

func (f *Figure) anchored(x, y float64, class, anchor, text string) {
	f.printf(`<text x="%.1f" y="%.1f" class="%s" text-anchor="%s">%s</text>`+"\n", x, y, class, anchor, escaped(text))
}

// Line draws a straight line.
func (f *Figure) Line(x1, y1, x2, y2 float64, class string) {
	f.printf(`<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" class="%s"/>`+"\n", x1, y1, x2, y2, class)
}

// Arrow draws a curve from left to right, with a head at its end.
func (f *Figure) Arrow(x1, y1, x2, y2 float64) {
	bend := (x2 - x1) / 2
	f.printf(`<path class="edge" marker-end="url(#head)" d="M%.1f,%.1f C%.1f,%.1f %.1f,%.1f %.1f,%.1f"/>`+"\n", x1, y1, x1+bend, y1, x2-bend, y2, x2, y2)
}

// Legend draws boxes in colours with their meaning in a row from the left, and returns where it ends.
func (f *Figure) Legend(y float64, entries ...[2]string) float64 {
	x := 20.0
	for _, e := range entries {
		f.Rect(x, y, 14, 14, e[0], "")
		f.Text(x+20, y+12, Plain, e[1])
		x += 38 + 7.5*float64(len(e[1]))
	}
	return x
}

// Axis draws a time axis: a line for each step between top and bottom and its label below, at most a dozen, at round numbers.
// at converts seconds to a position.
func (f *Figure) Axis(seconds, top, bottom float64, at func(float64) float64) {
	step := 1.0
	for _, step = range []float64{1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1800, 3600} {
		if seconds/step <= 12 {
			break
		}
	}
	for s := 0.0; s <= seconds; s += step {
		f.Line(at(s), top, at(s), bottom+4, Grid)
		f.Middle(at(s), bottom+20, Muted, fmt.Sprintf("%g s", s))
	}
}

// Bytes is the finished figure; nothing can be drawn after it.
func (f *Figure) Bytes() []byte {
	f.printf("</svg>\n")
	return f.out.Bytes()
}

// WriteTo writes the finished figure.
func (f *Figure) WriteTo(w io.Writer) (int64, error) {
	n, err := w.Write(f.Bytes())
	return int64(n), err
}
