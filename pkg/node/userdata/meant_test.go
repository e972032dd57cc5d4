package userdata_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/hardtack/packer-plugin-hardtack/pkg/node/userdata"
)

// TestDecimalMode: a mode that a program converted to a decimal is not called another octal mode, or one that is none.
func TestDecimalMode(t *testing.T) {
	for text, want := range map[string]string{
		"644":   `644 would be read as decimal: write the mode in quotes, "0644", or "1204" if it was converted to a decimal`,
		"420":   `420 would be read as decimal: write the mode in quotes, "0420", or "0644" if it was converted to a decimal`,
		"493":   `493 would be read as decimal: write the mode in quotes, "0755" if it was converted to a decimal`,
		"99999": `99999 would be read as decimal: write the mode in quotes`,
	} {
		_, problems := userdata.Parse([]byte("#cloud-config\nwrite_files:\n- {path: /a, permissions: "+text+"}\n"), nil)
		if got := fmt.Sprint(problems); !strings.Contains(got, want) || text == "99999" && strings.Contains(got, "quotes,") {
			t.Errorf("%s: %s", text, got)
		}
	}
}
