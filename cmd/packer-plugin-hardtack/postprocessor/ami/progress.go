package ami

import (
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	packersdk "github.com/hashicorp/packer-plugin-sdk/packer"

	"github.com/hardtack/packer-plugin-hardtack/pkg/ami"
)

// interval is the time between two lines about the same work: each line is a call to Packer's process.
const interval = 5 * time.Second

// progress reports reading and sending to Packer's Ui.
type progress struct {
	ui packersdk.Ui

	mu          sync.Mutex
	what        string
	done, total int64
	reported    time.Time
}

var _ ami.Progress = (*progress)(nil)

// Begin implements ami.Progress.
func (p *progress) Begin(what string, total int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.what, p.done, p.total, p.reported = what, 0, total, time.Now()
	p.ui.Say(fmt.Sprintf("%s: %.1f MB", what, float64(total)/1e6))
}

// Add implements ami.Progress.
func (p *progress) Add(n int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.done += n; time.Since(p.reported) < interval {
		return
	}
	p.reported = time.Now()
	p.ui.Say(fmt.Sprintf("%s: %.1f of %.1f MB", p.what, float64(p.done)/1e6, float64(p.total)/1e6))
}

// logTo returns a logger that writes to the Ui, without times and levels.
func logTo(ui packersdk.Ui) *slog.Logger {
	return slog.New(slog.NewTextHandler(lines{ui}, &slog.HandlerOptions{ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
		if len(groups) == 0 && (a.Key == slog.TimeKey || a.Key == slog.LevelKey) {
			return slog.Attr{}
		}
		return a
	}}))
}

// lines is a writer of whole lines, as slog's handlers write them.
type lines struct{ ui packersdk.Ui }

func (l lines) Write(b []byte) (int, error) {
	l.ui.Say(strings.TrimPrefix(strings.TrimSuffix(string(b), "\n"), "msg="))
	return len(b), nil
}
