package systemd

import (
	"log/slog"
	"os"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestWatchdog notifies the manager while both loops turn, and not any more when one hangs.
func TestWatchdog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var last time.Time
		w := &Watchdog{limit: 10 * time.Minute, now: time.Now, turns: map[string]time.Time{}, notify: func() { last = time.Now() }}
		one, two := w.Loop("one"), w.Loop("two")
		go w.Run(t.Context(), slog.New(slog.DiscardHandler))
		for range 100 {
			one()
			two()
			time.Sleep(time.Minute)
		}
		synctest.Wait()
		if since := time.Since(last); since > w.limit/2 {
			t.Fatalf("both turn, and the manager was told %v ago", since)
		}
		hung := time.Now()
		for range 20 {
			one()
			time.Sleep(time.Minute)
		}
		synctest.Wait()
		if told := last.Sub(hung); told > w.limit/2 {
			t.Errorf("told %v after a loop hung", told)
		}
		two()
		time.Sleep(w.limit / 2)
		synctest.Wait()
		if time.Since(last) > w.limit/2 {
			t.Error("it turns again, and the manager is not told")
		}
	})
}

// TestWatchdogOfManager reads the manager's setting: a process that is not watched has a watchdog that does nothing.
func TestWatchdogOfManager(t *testing.T) {
	for name, test := range map[string]struct {
		usec, pid string
		limit     time.Duration
		err       string
	}{
		"none":              {"", "", 0, ""},
		"of this process":   {"600000000", "self", 10 * time.Minute, ""},
		"of another":        {"600000000", "1", 0, ""},
		"not a number":      {"often", "", 0, "reading how long the watchdog waits"},
		"with no process's": {"2000000", "", 2 * time.Second, ""},
	} {
		t.Run(name, func(t *testing.T) {
			if test.pid == "self" {
				test.pid = strconv.Itoa(os.Getpid())
			}
			t.Setenv("WATCHDOG_USEC", test.usec)
			t.Setenv("WATCHDOG_PID", test.pid)
			w, err := NewWatchdog()
			if (err != nil) != (test.err != "") || err != nil && !strings.Contains(err.Error(), test.err) {
				t.Fatalf("%v", err)
			}
			if err == nil && w.limit != test.limit {
				t.Errorf("%v, want %v", w.limit, test.limit)
			}
		})
	}
}
