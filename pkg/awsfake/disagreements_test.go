package awsfake

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestDisagreements: each place where AWS's documents differ has two sources, the reading that is taken, and a test that exists.
func TestDisagreements(t *testing.T) {
	text, err := os.ReadFile("disagreements.txt")
	noErr(t, err)
	files, err := filepath.Glob("*_test.go")
	noErr(t, err)
	var tests strings.Builder
	for _, name := range files {
		source, err := os.ReadFile(name)
		noErr(t, err)
		tests.Write(source)
	}
	places := strings.Split(strings.TrimSpace(string(text)), "\n\n")[1:]
	if len(places) < 10 {
		t.Errorf("%d places", len(places))
	}
	for _, place := range places {
		lines := strings.Split(place, "\n")
		for i, field := range []string{"place: ", "one: ", "other: ", "here: ", "test: "} {
			if len(lines) != 5 || len(strings.TrimPrefix(lines[i], field)) == len(lines[i]) {
				t.Fatalf("%q has no %s", place, field)
			}
		}
		if name := strings.TrimPrefix(lines[4], "test: "); !strings.Contains(tests.String(), "\nfunc "+name+"(") {
			t.Errorf("%s: there is no test %s", lines[0], name)
		}
	}
}
