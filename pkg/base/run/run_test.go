package run_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/run"
)

func TestErrorCarriesCommandAndOutput(t *testing.T) {
	err := run.Run(t.Context(), run.Command{Name: "sh", Args: []string{"-c", "echo answer; echo no such disk >&2; exit 3"}})
	var failed *run.Error
	if !errors.As(err, &failed) {
		t.Fatalf("error is %T %v, want *run.Error", err, err)
	}
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 3 {
		t.Errorf("exit code is not reachable in %v", err)
	}
	for _, want := range []string{"sh -c", "exit status 3", "no such disk"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error lacks %q: %v", want, err)
		}
	}
	if strings.Contains(failed.Output, "answer") {
		t.Errorf("stdout is in the error although stderr spoke: %q", failed.Output)
	}
}

func TestErrorFallsBackToStdoutAndKeepsTheEnd(t *testing.T) {
	err := run.Run(t.Context(), run.Command{Name: "sh", Args: []string{"-c", "seq 100000; echo the reason; exit 1"}})
	if err == nil || !strings.HasSuffix(err.Error(), "the reason") {
		t.Fatalf("the last line is not at the end of %.80q", err)
	}
	if len(err.Error()) > 5<<10 {
		t.Errorf("error is %d bytes, want the last 4 KiB only", len(err.Error()))
	}
}

func TestOutputAndStreams(t *testing.T) {
	out, err := run.Output(t.Context(), "echo", "a", "b")
	if err != nil || string(out) != "a b\n" {
		t.Fatalf("Output = %q, %v", out, err)
	}
	var both bytes.Buffer
	err = run.Run(t.Context(), run.Command{Name: "cat", Stdin: strings.NewReader("in"), Stdout: &both, Dir: t.TempDir()})
	if err != nil || both.String() != "in" {
		t.Fatalf("cat gave %q, %v", both.String(), err)
	}
}

func TestMissingProgramIsNamed(t *testing.T) {
	_, err := run.Output(t.Context(), "hardtack-no-such-program")
	if !errors.Is(err, exec.ErrNotFound) || !strings.Contains(err.Error(), "hardtack-no-such-program") {
		t.Fatalf("error is %v", err)
	}
}

// The shell has a child process: both must be gone.
func TestCancelEndsTheWholeGroup(t *testing.T) {
	pids := filepath.Join(t.TempDir(), "pids")
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- run.Run(ctx, run.Command{Name: "sh", Args: []string{"-c", `sleep 1000 & echo $! $$ > ` + pids + `; wait`}})
	}()
	var text []byte
	for len(text) == 0 {
		time.Sleep(5 * time.Millisecond)
		text, _ = os.ReadFile(pids)
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("error is %v, want context.Canceled in it", err)
	}
	ended(t, text)
}

// alive reports whether the process runs; a zombie that its new parent has not collected does not.
func alive(pid int) bool {
	if syscall.Kill(pid, 0) != nil {
		return false
	}
	stat, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	return err == nil && !strings.Contains(string(stat), ") Z ")
}

func TestStartedTellsTheProcess(t *testing.T) {
	var out bytes.Buffer
	told := 0
	err := run.Run(t.Context(), run.Command{Name: "sh", Args: []string{"-c", "echo $$"}, Stdout: &out, Started: func(pid int) { told = pid }})
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.TrimSpace(out.String()); got != strconv.Itoa(told) {
		t.Errorf("told %d, the process says %s", told, got)
	}
	told = 0
	if err := run.Run(t.Context(), run.Command{Name: "no-such-program", Started: func(pid int) { told = pid }}); err == nil || told != 0 {
		t.Errorf("a program that is missing: %v, told %d", err, told)
	}
}

// TestEndOfDetached: a process that does as it is asked ends at once, and one that does not is killed with its group.
func TestEndOfDetached(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, script string
		patience     time.Duration
	}{
		{"asked", "echo $$; sleep 1000 & wait", time.Hour},
		{"killed", "trap '' TERM; sleep 1000 & echo $$ $!; while :; do wait; done", 50 * time.Millisecond},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			said, err := os.Create(filepath.Join(t.TempDir(), "said"))
			if err != nil {
				t.Fatal(err)
			}
			defer said.Close()
			d, err := run.Detach(run.Command{Name: "sh", Args: []string{"-c", tt.script}}, said)
			if err != nil {
				t.Fatal(err)
			}
			var text []byte
			for len(text) == 0 { // its trap is set
				time.Sleep(5 * time.Millisecond)
				text, _ = os.ReadFile(said.Name())
			}
			d.End(tt.patience)
			ended(t, text)
		})
	}
}

// ended waits until the processes with these numbers have ended. The kernel ends them; the test's own deadline is the bound.
func ended(t *testing.T, pids []byte) {
	t.Helper()
	for field := range strings.FieldsSeq(string(pids)) {
		pid, err := strconv.Atoi(field)
		if err != nil {
			t.Fatal(err)
		}
		for alive(pid) {
			time.Sleep(5 * time.Millisecond)
		}
	}
}
