package figure_test

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/figure"
)

// TestFigure: what is drawn is well-formed whatever its text, has both colour schemes, and its axis a dozen labels at most.
func TestFigure(t *testing.T) {
	t.Parallel()
	f := figure.New(400, 200, `a <b> & "c"`)
	f.Rect(1, 2, 3, 4, figure.Blue, "<tip>")
	f.Arrow(1, 1, 9, 9)
	f.Legend(40, [2]string{figure.Red, "x & y"})
	f.Axis(1000, 10, 20, func(s float64) float64 { return s })
	data := f.Bytes()
	for d := xml.NewDecoder(bytes.NewReader(data)); ; {
		_, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("%v in\n%s", err, data)
		}
	}
	if n := strings.Count(string(data), " s</text>"); n < 5 || n > 13 {
		t.Errorf("%d labels of time", n)
	}
	if !strings.Contains(string(data), "prefers-color-scheme: dark") {
		t.Error("there is no dark scheme")
	}
}
