package systemd

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
)

// Watchdog tells the service manager that all loops of the process still turn: a unit with WatchdogSec= is started again if one
// has not for that long. A loop that hangs would else hang for ever, and nobody would see it, since the process lives.
type Watchdog struct {
	limit  time.Duration
	now    func() time.Time
	notify func()

	mu    sync.Mutex
	turns map[string]time.Time
}

// NewWatchdog returns the watchdog of the process's unit. One of a unit without WatchdogSec= does nothing. An error means that the
// manager's setting cannot be read.
func NewWatchdog() (*Watchdog, error) {
	limit, err := daemon.SdWatchdogEnabled(false)
	if err != nil {
		return nil, fmt.Errorf("reading how long the watchdog waits: %w", err)
	}
	return &Watchdog{limit: limit, now: time.Now, turns: map[string]time.Time{}, notify: func() {
		_, _ = daemon.SdNotify(false, daemon.SdNotifyWatchdog) // a lost one is followed by others
	}}, nil
}

// Loop adds a loop. It must call the result at each of its turns, which must be closer together than WatchdogSec=.
func (w *Watchdog) Loop(name string) func() {
	turn := func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.turns[name] = w.now()
	}
	turn()
	return turn
}

// Run notifies the manager until ctx ends.
func (w *Watchdog) Run(ctx context.Context, log *slog.Logger) {
	if w.limit == 0 {
		return
	}
	every := time.NewTicker(w.limit / 4) // twice as often as sd_watchdog_enabled(3) has it: a busy machine is late
	defer every.Stop()
	for {
		if name, since := w.hangs(); name != "" {
			log.ErrorContext(ctx, "a loop hangs: the unit's watchdog starts it again", "loop", name, "for", since.Round(time.Second))
		} else {
			w.notify()
		}
		select {
		case <-ctx.Done():
			return
		case <-every.C:
		}
	}
}

// hangs returns a loop that has not turned for longer than the limit's half, after which the manager waits for the other half at
// the most; "" if there is none.
func (w *Watchdog) hangs() (name string, since time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for name, turn := range w.turns {
		if since := w.now().Sub(turn); since > w.limit/2 {
			return name, since
		}
	}
	return "", 0
}
