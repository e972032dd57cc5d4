package record

import (
	"strings"
	"testing"
)

// TestLengths looks at both sides of each bound: the expressions do not know them.
func TestLengths(t *testing.T) {
	for n, want := range map[int]bool{0: false, 1: true, maxLabel: true, maxLabel + 1: false} {
		if got := isLabel(strings.Repeat("x", n)); got != want {
			t.Errorf("a label of %d: %v", n, got)
		}
	}
	for n, plain := range map[int]bool{1: true, maxPlain: true, maxPlain + 1: false} {
		name := strings.Repeat("x", n)
		if got := DefaultPolicy().groupKey("masters", name); (got == "masters/"+name) != plain {
			t.Errorf("a group's name of %d: %s", n, got)
		}
		if got := ownerText(name, DefaultPolicy()); (got == "owner=hardtack/"+name) != plain {
			t.Errorf("an owner of %d: %s", n, got)
		}
	}
}
