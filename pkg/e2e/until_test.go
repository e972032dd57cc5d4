package e2e

import (
	"os"
	"strconv"
	"testing"
	"time"
)

// untilVariable has the time, in seconds since 1970, by which all tests with machines are to end; none is no limit. CI sets it: a
// computer may be half as fast as another, and CI that is cut off says nothing about what it has run.
const untilVariable = "HARDTACK_E2E_UNTIL"

// What the tests of whole clusters take with two emulated processors and nothing beside them.
const (
	labTakes    = 8 * time.Minute // without its last part
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
	until, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		t.Fatalf("%s: %v", untilVariable, err)
	}
	needed := takes
	for _, d := range then {
		needed += d
	}
	needed = time.Duration(float64(needed) * pace)
	if left := time.Until(time.Unix(until, 0)); left < needed {
		t.Skipf("this computer is slow: of the time of %s %v are left, and this with what must follow needs %v; make e2e without it runs all",
			untilVariable, max(left, 0).Round(time.Second), needed.Round(time.Second))
	}
	began := time.Now()
	return func() {
		if !t.Failed() && takes >= time.Minute {
			pace = max(1, time.Since(began).Seconds()/takes.Seconds())
		}
	}
}
