package bake

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/hardtack/packer-plugin-hardtack/pkg/unit"
)

// rolesText is the role table for people: what a machine with each set of roles starts.
func rolesText(t unit.Table) []byte {
	width := 0
	for _, c := range t.Combinations {
		width = max(width, len(c.Name))
	}
	var out bytes.Buffer
	for _, c := range t.Combinations {
		starts := strings.Join(c.Starts, " ")
		if len(c.Fails) > 0 {
			starts += " (fails: " + strings.Join(c.Fails, " ") + ")"
		}
		fmt.Fprintf(&out, "%-*s  %s\n", width, c.Name, starts)
	}
	return out.Bytes()
}
