package bake

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// verdict is what images/README.md says of a base.
func verdict(b Base) string {
	switch {
	case b.Tested:
		return "works"
	case b.Systemd >= LeastSystemd:
		return "not tried"
	}
	return "refused"
}

// TestBases judges the releases of the table, and systems that no table lists, by what they say of themselves.
func TestBases(t *testing.T) {
	page, err := os.ReadFile("../../../images/README.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range Bases() {
		if row := fmt.Sprintf("| %s %s | %d | %s |", strings.ToUpper(b.ID[:1])+b.ID[1:], b.Version, b.Systemd, verdict(b)); !strings.Contains(string(page), row) {
			t.Errorf("images/README.md lacks the row %s", row)
		}
		err := judge(osRelease{id: b.ID, version: b.Version, like: []string{"debian"}}, b.Systemd)
		if works := verdict(b) != "refused"; works != (err == nil) {
			t.Errorf("%s %s is said to be %q, and the verdict is %v", b.ID, b.Version, verdict(b), err)
		}
		// A target whose systemd says nothing is judged by the table.
		if quiet := judge(osRelease{id: b.ID, version: b.Version, like: []string{"debian"}}, 0); (quiet == nil) != (err == nil) {
			t.Errorf("%s %s without its systemd's version: %v, with it %v", b.ID, b.Version, quiet, err)
		}
	}
	for _, tt := range []struct {
		o       osRelease
		systemd int
		want    string
	}{
		{osRelease{id: "debian", version: "13", name: "Debian GNU/Linux 13 (trixie)"}, 257, ""},
		{osRelease{id: "debian", name: "Debian GNU/Linux forky/sid"}, 259, ""},
		{osRelease{id: "raspbian", like: []string{"debian"}, version: "13"}, 257, ""},
		{osRelease{id: "debian", version: "12", name: "Debian GNU/Linux 12 (bookworm)"}, 252, "Debian GNU/Linux 12 (bookworm) with systemd 252, and the units need 254"},
		{osRelease{id: "amzn", like: []string{"fedora"}, version: "2023", name: "Amazon Linux 2023"}, 252, "the target is Amazon Linux 2023, and images are made of a Debian system (bake on Debian 13"},
		{osRelease{id: "flatcar", like: []string{"coreos"}, version: "4081"}, 255, "the target is flatcar 4081, and images are made of a Debian"},
		{osRelease{id: "linuxmint", like: []string{"ubuntu", "debian"}, version: "99"}, 0, "has no systemd"},
	} {
		err := judge(tt.o, tt.systemd)
		if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%+v with systemd %d: %v, want %q", tt.o, tt.systemd, err, tt.want)
		}
	}
}
