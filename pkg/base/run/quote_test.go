package run_test

import (
	"testing"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/run"
)

func TestQuote(t *testing.T) {
	for word, want := range map[string]string{"": "''", "a b": "'a b'", "it's $x": `'it'\''s $x'`} {
		if got := run.Quote(word); got != want {
			t.Errorf("Quote(%q) = %s, not %s", word, got, want)
		}
	}
}
