package ami

import (
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	packersdk "github.com/hashicorp/packer-plugin-sdk/packer"

	"github.com/hardtack/packer-plugin-hardtack/pkg/publish"
)

// interval is the time between two lines about the same work: a line is a call to Packer's process.
const interval = 5 * time.Second

// progress tells Packer's Ui about reading and sending.
type progress struct {
	ui packersdk.Ui

	mu          sync.Mutex
	what        string
	done, total int64
	told        time.Time
}

var _ publish.Progress = (*progress)(nil)

// Begin is publish.Progress's.
func (p *progress) Begin(what string, total int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.what, p.done, p.total, p.told = what, 0, total, time.Now()
	p.ui.Say(fmt.Sprintf("%s: %.1f MB", what, float64(total)/1e6))
}

// Add is publish.Progress's.
func (p *progress) Add(n int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.done += n; time.Since(p.told) < interval {
		return
	}
	p.told = time.Now()
	p.ui.Say(fmt.Sprintf("%s: %.1f of %.1f MB", p.what, float64(p.done)/1e6, float64(p.total)/1e6))
}

// logTo tells the Ui what is logged, without times and levels.
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
