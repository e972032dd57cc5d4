package e2e

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
)

// untilVariable has the time, in seconds since 1970, by which all tests with machines are to end; none is no limit. CI sets it: a
// computer may be half as fast as another, and CI that is cut off says nothing about what it has run.
const untilVariable = "HARDTACK_E2E_UNTIL"

// grace is how long after it a test that has begun may go on: what hangs ends while CI can still say so.
const grace = 10 * time.Minute

// What the tests of whole clusters take with two emulated processors and nothing beside them.
const (
	labUp       = 6 * time.Minute
	labTakes    = 8 * time.Minute // without the replacement of a minion
	faultsTakes = 6 * time.Minute
)

// pace is how many times longer than it says the last of those tests' parts took. They run one after the other.
var pace = 1.0

// fits skips a test, or a part of one, that would not end by the time of untilVariable: it takes so long, and what then follows
// is not to be skipped for it. What takes a minute or more calls the returned function at its end, to say how slow this computer is.
func fits(t *testing.T, takes time.Duration, then ...time.Duration) (ended func()) {
	t.Helper()
	text := os.Getenv(untilVariable)
	if text == "" {
		return func() {}
	}
	began := time.Now()
	late, err := tooLate(text, began, pace, append(then, takes)...)
	if err != nil {
		t.Fatal(err)
	}
	if late != "" {
		t.Skip(late)
	}
	return func() {
		if !t.Failed() && takes >= time.Minute {
			pace = paceOf(time.Since(began), takes)
		}
	}
}

// tooLate is why what takes so long at that pace does not fit into the time until then, or empty.
func tooLate(until string, now time.Time, pace float64, takes ...time.Duration) (string, error) {
	seconds, err := strconv.ParseInt(until, 10, 64)
	if err != nil {
		return "", fmt.Errorf("%s: %w", untilVariable, err)
	}
	var needed time.Duration
	for _, d := range takes {
		needed += time.Duration(float64(d) * pace)
	}
	left := time.Unix(seconds, 0).Sub(now)
	if left >= needed {
		return "", nil
	}
	return fmt.Sprintf("this computer is slow: of the time of %s %v are left, and this with what must follow needs %v; make e2e without it runs all",
		untilVariable, max(left, 0).Round(time.Second), needed.Round(time.Second)), nil
}

// paceOf never says that a computer is quick: the next part may wait for something else than a processor.
func paceOf(took, takes time.Duration) float64 { return max(1, took.Seconds()/takes.Seconds()) }

func TestTooLate(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	const until = "1000600" // ten minutes
	slow := paceOf(25*time.Minute, 10*time.Minute)
	for _, tt := range []struct {
		until string
		pace  float64
		takes []time.Duration
		late  string
	}{
		{until, 1, []time.Duration{10 * time.Minute}, ""},
		{until, 1, []time.Duration{6 * time.Minute, 5 * time.Minute}, "10m0s are left, and this with what must follow needs 11m0s"},
		{until, slow, []time.Duration{4 * time.Minute}, ""},
		{until, slow, []time.Duration{5 * time.Minute}, "needs 12m30s"},
		{until, paceOf(time.Minute, time.Hour), []time.Duration{11 * time.Minute}, "needs 11m0s"},
		{until, 1, nil, ""},
		{"999999", 1, nil, "0s are left"},
	} {
		late, err := tooLate(tt.until, now, tt.pace, tt.takes...)
		if err != nil || (late == "") != (tt.late == "") || !strings.Contains(late, tt.late) {
			t.Errorf("%v at a pace of %v until %s: %q, %v", tt.takes, tt.pace, tt.until, late, err)
		}
	}
	if _, err := tooLate("soon", now, 1); err == nil || !strings.Contains(err.Error(), untilVariable) {
		t.Errorf("a time that is none: %v", err)
	}
}
