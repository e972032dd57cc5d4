package reason

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestTable has advice for every reason, and no other.
func TestTable(t *testing.T) {
	for _, r := range All() {
		if r.Next() == "" {
			t.Errorf("%s has no next step", r)
		}
	}
	if len(next) != len(All()) {
		t.Errorf("%d next steps for %d reasons", len(next), len(All()))
	}
}

// TestNextIsToDo has a command or a line in every advice, and nothing that is only to be found in Hardtack's own sources.
func TestNextIsToDo(t *testing.T) {
	command := regexp.MustCompile(`(^|[ (])(hardtack(-agent)? [a-z]|journalctl|networkctl|timedatectl|findmnt|kubectl|aws [a-z]|curl )`)
	for _, r := range All() {
		if !command.MatchString(r.Next()) {
			t.Errorf("%s: %q names no command", r, r.Next())
		}
		for _, word := range []string{"pkg/", "public/", "machine.yaml", "ca.crt"} {
			if strings.Contains(r.Next(), word) {
				t.Errorf("%s: %q sends people to %s", r, r.Next(), word)
			}
		}
	}
	if f := Explain("kubelet.service", errors.New("x")); f.Next != "journalctl -u kubelet.service, and report the bug with its output" {
		t.Errorf("%q", f.Next)
	}
}

// TestReporter writes a failure that several units share once, until it changes or is resolved.
func TestReporter(t *testing.T) {
	reporter := Reporter{Dir: filepath.Join(t.TempDir(), "failures")}
	config, store := Errorf(Config, "no store"), Errorf(Store, "no answer")
	for i, step := range []struct {
		unit    string
		err     error
		clear   bool
		written bool
	}{
		{"node.service", config, false, true},
		{"node.service", config, false, false},
		{"bootstrap.service", config, false, false},
		{"bootstrap.service", store, false, true},
		{"bootstrap.service", config, false, false}, // node still says it
		{"node.service", nil, true, false},
		{"bootstrap.service", config, false, false},
		{"bootstrap.service", nil, true, false},
		{"bootstrap.service", config, false, true}, // it was over
	} {
		if step.clear {
			reporter.Clear(step.unit)
			continue
		}
		var b strings.Builder
		written, err := reporter.Report(&b, Explain(step.unit, step.err))
		if err != nil || written != (b.Len() > 0) {
			t.Fatal(err)
		}
		if (b.Len() > 0) != step.written {
			t.Errorf("step %d: %s says %q", i, step.unit, b.String())
		}
	}
	// Without a usable directory every failure is written.
	for range 2 {
		var b strings.Builder
		if _, err := (Reporter{Dir: "/proc/none/failures"}).Report(&b, Explain("u", config)); err != nil || b.Len() == 0 {
			t.Errorf("%q, %v", b.String(), err)
		}
	}
}

// TestReporterConcurrent has many units fail at the same moment, of which one reports.
func TestReporterConcurrent(t *testing.T) {
	reporter := Reporter{Dir: filepath.Join(t.TempDir(), "failures")}
	var group sync.WaitGroup
	var lines atomic.Int32
	for i := range 20 {
		group.Go(func() {
			var b strings.Builder
			if _, err := reporter.Report(&b, Explain(fmt.Sprintf("u%d.service", i), Errorf(Config, "no store"))); err != nil {
				t.Error(err)
			}
			if b.Len() > 0 {
				lines.Add(1)
			}
		})
	}
	group.Wait()
	if lines.Load() != 1 {
		t.Errorf("%d of twenty have reported it", lines.Load())
	}
}

// TestLine is read back from a console as it was written.
func TestLine(t *testing.T) {
	err := fmt.Errorf("starting: %w", Errorf(DNS, "masters.demo.k8s:\n\tno such host \"x\": %w", fs.ErrNotExist))
	f := Explain("kubelet.service", err)
	want := `{"hardtack":"failed","unit":"kubelet.service","reason":"dns","cause":"starting: masters.demo.k8s: no such host \"x\": file does not exist",` +
		`"next":"hardtack dns doctor checks the zone; a record appears once a machine of its group is healthy"}`
	if got := f.Line(); got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
	for _, line := range []string{f.Line(), "[   31.5] hardtack-agent[312]: " + f.Line() + "\r\n", f.Line() + "[  OK  ] Started"} {
		got, ok := Parse(line)
		if diff := cmp.Diff(f, got); !ok || diff != "" {
			t.Errorf("%q: %v %s", line, ok, diff)
		}
	}
	for _, line := range []string{"", f.Line()[:90], strings.Replace(f.Line(), `"dns"`, `"magic"`, 1), `{"hardtack":"timeline"}`} {
		if got, ok := Parse(line); ok {
			t.Errorf("%q: %+v", line, got)
		}
	}
}

// TestReasons gives an error its first reason only.
func TestReasons(t *testing.T) {
	plain := errors.New("broken")
	if Of(plain) != Internal || Of(With(Store, plain)) != Store || Of(With(DNS, With(Store, plain))) != Store || With(DNS, nil) != nil {
		t.Errorf("%v", With(DNS, With(Store, plain)))
	}
	if !errors.Is(With(Store, plain), plain) || With(Store, plain).Error() != "broken" {
		t.Error("the error is lost")
	}
	f := Explain("a.service", &Error{Reason: Store, Next: "look there", Err: plain})
	if f.Next != "look there" {
		t.Errorf("%+v", f)
	}
	if f := Explain("a.service", errors.New(strings.Repeat("é", 800))); len(f.Cause) > maxCause+3 || !strings.HasSuffix(f.Cause, "é...") {
		t.Errorf("%d bytes, %q", len(f.Cause), f.Cause[len(f.Cause)-5:])
	}
}

// TestStatus goes through systemd's STATUS= and back.
func TestStatus(t *testing.T) {
	text := Status(Errorf(Unreachable, "10.1.0.12: connection\nrefused"))
	r, cause, ok := OfStatus(text)
	if text != "[unreachable] 10.1.0.12: connection refused" || r != Unreachable || cause != "10.1.0.12: connection refused" || !ok {
		t.Errorf("%q: %q %q %v", text, r, cause, ok)
	}
	for _, text := range []string{"", "Startup finished", "[magic] x", "[dns]"} {
		if _, cause, ok := OfStatus(text); ok || cause != text {
			t.Errorf("%q is no status of ours: %q", text, cause)
		}
	}
}
