package main

import (
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// startTotal bounds what all packages allocate before the program's first line, in bytes; the agent's allocate 2.4 MB.
const startTotal = 150_000

// initLine is a line of GODEBUG=inittrace=1: init PACKAGE @0.1 ms, 0.2 ms clock, 3 bytes, 4 allocs.
var initLine = regexp.MustCompile(`^init (\S+) @.* (\d+) bytes, \d+ allocs$`)

// TestStart measures what the program allocates before its first line.
func TestStart(t *testing.T) {
	run := exec.CommandContext(t.Context(), program, "version")
	run.Env = append(os.Environ(), "GODEBUG=inittrace=1")
	var trace strings.Builder
	run.Stderr = &trace
	if err := run.Run(); err != nil {
		t.Fatalf("%v\n%s", err, trace.String())
	}
	total, packages := 0, 0
	for line := range strings.Lines(trace.String()) {
		m := initLine.FindStringSubmatch(strings.TrimSpace(line))
		if m == nil {
			continue
		}
		bytes, err := strconv.Atoi(m[2])
		if err != nil {
			t.Fatal(err)
		}
		packages++
		total += bytes
	}
	if packages < 30 || total == 0 {
		t.Fatalf("only %d packages with %d bytes: the trace reads otherwise than it did\n%.2000s", packages, total, trace.String())
	}
	if total > startTotal {
		t.Errorf("%d packages allocate %d bytes before the first line, over %d:\n%s", packages, total, startTotal, trace.String())
	}
	t.Logf("%d packages, %d bytes", packages, total)
}
