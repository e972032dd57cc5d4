package main

import (
	"io"
	"os"
	"sync"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"

	"github.com/hardtack/packer-plugin-hardtack/pkg/image/fetch"
)

// progress shows all transfers as one bar, since a terminal has one last line. It shows nothing if stderr is no
// terminal.
type progress struct {
	mu    sync.Mutex
	bar   *progressbar.ProgressBar
	total int64
}

func newProgress(w io.Writer) *progress {
	if f, ok := w.(*os.File); !ok || !term.IsTerminal(int(f.Fd())) {
		return &progress{}
	}
	return &progress{bar: progressbar.NewOptions64(1,
		progressbar.OptionSetWriter(w), progressbar.OptionShowBytes(true), progressbar.OptionShowTotalBytes(true),
		progressbar.OptionUseIECUnits(true), progressbar.OptionThrottle(100*time.Millisecond), progressbar.OptionClearOnFinish(),
	)}
}

// Start implements fetch.Progress.
func (p *progress) Start(what string, total int64) fetch.Meter {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.bar != nil {
		p.total += total
		p.bar.ChangeMax64(max(1, p.total))
		p.bar.Describe(what)
	}
	return p
}

// Add implements fetch.Meter.
func (p *progress) Add(n int64) {
	if p.bar != nil {
		_ = p.bar.Add64(n) // a lost terminal does not stop the work
	}
}

// Done implements fetch.Meter. It does nothing: the bar is of all transfers and ends with finish.
func (p *progress) Done(error) {}

// finish removes the bar.
func (p *progress) finish() {
	if p.bar != nil {
		_ = p.bar.Clear()
	}
}
