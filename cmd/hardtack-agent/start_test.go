package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// startBytes bounds a package's allocations before the program's first line, in bytes; startLarge lists the
// exceptions. A boot starts the agent a dozen times, and an emulated processor pays for each of these tables in pages and translated code.
const startBytes = 64 << 10

var startLarge = map[string]int{
	// Every shape of an API of 140 calls, of which the store makes two; its generated client cannot do without.
	"github.com/aws/aws-sdk-go-v2/service/ssm/schemas": 1_500_000,
	// A partition's regions and names, for each service that is asked.
	"github.com/aws/aws-sdk-go-v2/service/ssm/internal/endpoints":         110_000,
	"github.com/aws/aws-sdk-go-v2/service/ec2/internal/endpoints":         110_000,
	"github.com/aws/aws-sdk-go-v2/service/autoscaling/internal/endpoints": 110_000,
}

// startTotal bounds all together; it is 2.4 MB.
const startTotal = 2_600_000

// initLine is a line of GODEBUG=inittrace=1: init PACKAGE @0.1 ms, 0.2 ms clock, 3 bytes, 4 allocs.
var initLine = regexp.MustCompile(`^init (\S+) @.* (\d+) bytes, \d+ allocs$`)

// TestStart measures the allocations of each package before the program's first line.
func TestStart(t *testing.T) {
	program := filepath.Join(t.TempDir(), "hardtack-agent")
	build := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w", "-o", program, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building the agent: %v\n%s", err, out)
	}
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
		if limit := max(startBytes, startLarge[m[1]]); bytes > limit {
			t.Errorf("%s allocates %d bytes at the start of the agent, over %d: make its tables when they are needed, or keep it out of the agent", m[1], bytes, limit)
		}
	}
	if packages < 50 || total < startBytes {
		t.Fatalf("only %d packages with %d bytes: the trace reads otherwise than it did\n%.2000s", packages, total, trace.String())
	}
	if total > startTotal {
		t.Errorf("%d packages allocate %d bytes before the first line, over %d", packages, total, startTotal)
	}
	t.Logf("%d packages, %d bytes", packages, total)
}
