package reason

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
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

// TestLine is read back from a console as it was written.
func TestLine(t *testing.T) {
	err := fmt.Errorf("starting: %w", Errorf(DNS, "masters.demo.k8s:\n\tno such host \"x\": %w", fs.ErrNotExist))
	f := Explain("kubelet.service", err)
	want := `{"hardtack":"failed","unit":"kubelet.service","reason":"dns","cause":"starting: masters.demo.k8s: no such host \"x\": file does not exist",` +
		`"next":"hardtack dns doctor looks at the zone; the record is there when a machine of the group is"}`
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
