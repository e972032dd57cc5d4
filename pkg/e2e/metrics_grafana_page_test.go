package e2e

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
)

// needBrowser returns a Chromium.
func needBrowser(t *testing.T) string {
	t.Helper()
	var missing []error
	for _, name := range []string{"chromium", "google-chrome"} {
		program, err := exec.LookPath(name)
		if err == nil {
			return program
		}
		missing = append(missing, err)
	}
	t.Skipf("no browser shows Grafana's page (install Debian's package chromium): %v", errors.Join(missing...))
	return ""
}

// openPage opens a page in a browser, of which chromedp's handle is a context. It is so high that all panels are in sight, for Grafana asks for no others, and with two pixels for each, so that
// thin lines have their colour.
func openPage(t *testing.T, program, address string, panels []metricsPanel) context.Context {
	t.Helper()
	lowest := 0
	for _, p := range panels {
		lowest = max(lowest, p.Pos.Y+p.Pos.H)
	}
	options := append(slices.Clone(chromedp.DefaultExecAllocatorOptions[:]), chromedp.ExecPath(program), chromedp.NoSandbox, chromedp.DisableGPU,
		chromedp.Flag("no-proxy-server", true), chromedp.Flag("disable-component-update", true))
	allocator, end := chromedp.NewExecAllocator(t.Context(), options...)
	t.Cleanup(end)
	ctx, closed := chromedp.NewContext(allocator)
	t.Cleanup(closed)
	const row = 38 // of Grafana's grid, in pixels
	if err := chromedp.Do(ctx, chromedp.EmulateViewport(1600, int64(lowest*row+2*row), chromedp.EmulateScale(2)), chromedp.Navigate(address)); err != nil {
		t.Fatalf("opening %s: %v", address, err)
	}
	return ctx
}

// keepPage leaves a picture of the page in build/, for a person to look at.
func keepPage(page context.Context, t *testing.T) {
	t.Helper()
	picture, err := chromedp.Run(page, chromedp.CaptureScreenshot())
	file := filepath.Join(root, "build", strings.ReplaceAll(t.Name(), "/", "-")+".png")
	if err == nil {
		err = errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, picture, 0o600))
	}
	if err != nil {
		t.Errorf("a picture of the page: %v", err)
		return
	}
	t.Logf("a picture of the page is %s", file)
}

// shownPanel is what a panel of the page shows.
type shownPanel struct {
	ID     int    `json:"id"`
	Failed bool   `json:"failed"`
	Text   string `json:"text"`
	// Lines are those of the legend.
	Lines []struct {
		Name string `json:"name"`
		// Drawn is how many pixels of the panel have the line's colour.
		Drawn int `json:"drawn"`
	} `json:"lines"`
}

// readPage reads the panels of Grafana 9. A line has the colour of its legend; where it crosses others or the ground, pixels are mixed.
const readPage = `[...document.querySelectorAll('[data-panelid]')].map(panel => {
	const canvas = panel.querySelector('.uplot canvas')
	const pixels = canvas && canvas.width && canvas.height ? canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data : []
	const lines = [...panel.querySelectorAll('[aria-label^="VizLegend series "]')].map(item => {
		const icon = item.querySelector('[data-testid="series-icon"]')
		const [r, g, b] = getComputedStyle(icon).backgroundColor.match(/\d+/g).map(Number)
		let drawn = 0
		for (let i = 0; i < pixels.length; i += 4)
			if (pixels[i + 3] > 200 && Math.abs(pixels[i] - r) < 24 && Math.abs(pixels[i + 1] - g) < 24 && Math.abs(pixels[i + 2] - b) < 24) drawn++
		return {name: item.textContent, drawn}
	})
	return {id: Number(panel.dataset.panelid), failed: !!panel.querySelector('.panel-info-corner--error'), text: panel.innerText, lines}
})`

// shown are the panels of a page that do not show the lines that the right dashboard has, each with why.
func (g *grafana) shown(page context.Context, t *testing.T) (map[int]string, error) {
	t.Helper()
	want, err := g.lines(t)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(page, time.Minute)
	defer cancel()
	panels, err := chromedp.Run(ctx, chromedp.Evaluate[[]shownPanel](readPage))
	if err != nil {
		return nil, fmt.Errorf("reading the page: %w", err)
	}
	shown := map[int]shownPanel{}
	for _, p := range panels {
		shown[p.ID] = p
	}
	wrong := map[int]string{}
	for _, p := range g.panels {
		if len(p.Targets) == 0 {
			continue
		}
		s, has := shown[p.ID]
		if why := s.wrong(want[p.ID]); why != "" || !has {
			wrong[p.ID] = fmt.Sprintf("%q (on the page: %v) %s", p.Title, has, why)
		}
	}
	return wrong, nil
}

// wrong is why a panel does not show these lines, or empty.
func (s shownPanel) wrong(want []metricsLine) string {
	if s.Failed {
		return "shows an error"
	}
	if len(want) == 0 {
		if len(s.Lines) > 0 || !strings.Contains(s.Text, "No data") {
			return fmt.Sprintf("says %q, want no data", s.Text)
		}
		return ""
	}
	names, drawn := []string{}, map[string]bool{}
	for _, l := range s.Lines {
		names = append(names, l.Name)
		drawn[l.Name] = l.Drawn > 0
	}
	slices.Sort(names)
	if want := lineNames(want); !slices.Equal(names, want) {
		return fmt.Sprintf("has the legend %q, want %q", names, want)
	}
	covering := slices.DeleteFunc(slices.Clone(want), func(l metricsLine) bool { return !drawn[l.name] })
	for _, l := range want {
		if !drawn[l.name] && !l.hidden(want, covering) {
			return fmt.Sprintf("does not draw %q", l.name)
		}
	}
	return ""
}

// hidden: a line of a panel need not be seen, since it has no values, or lines that are drawn are where it would be.
func (l metricsLine) hidden(panel, drawn []metricsLine) bool {
	lowest, highest := bounds(panel)
	for at, v := range l.values {
		if !slices.ContainsFunc(drawn, func(other metricsLine) bool {
			there, has := other.values[at]
			return has && math.Abs(there-v) <= (highest-min(lowest, 0))/50
		}) {
			return false
		}
	}
	return true
}
