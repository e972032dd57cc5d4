package ready_test

import (
	"net/url"
	"slices"
	"testing"

	"github.com/hardtack/packer-plugin-hardtack/pkg/image/unit"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/reason"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
	"github.com/hardtack/packer-plugin-hardtack/units"
)

// TestEveryUnitIsChecked fails for a unit of the image that belongs to a role and is missing in the role's profile: the
// machine would be called ready without a check of that unit.
func TestEveryUnitIsChecked(t *testing.T) {
	us, problems := unit.Load(units.FS)
	if err := problems.Err(); err != nil {
		t.Fatal(err)
	}
	profile := func(r role.Role) []string {
		var names []string
		for _, u := range r.Profile().Units {
			names = append(names, u.Name)
		}
		return names
	}
	everywhere := map[string]bool{}
	for _, u := range us {
		everywhere[u.Name] = u.EveryMachine()
		r, ok := u.Role()
		if ok && !slices.Contains(profile(r), u.Name) {
			t.Errorf("units/%s runs on %s and has no readiness check: add it to the profile of %s in pkg/role/profile.go", u.Name, r, r)
		}
	}
	for _, r := range role.All() {
		for _, name := range profile(r) {
			i := slices.IndexFunc(us, func(u unit.Unit) bool { return u.Name == name })
			if i < 0 {
				t.Errorf("pkg/role/profile.go: %s is not in units/", name)
			} else if of, _ := us[i].Role(); of != r && !everywhere[name] {
				t.Errorf("pkg/role/profile.go: %s is among the units of %s, and runs for %q", name, r, of)
			}
		}
	}
}

// TestEveryCheckCanBeAsked compares the profiles with this package's probes and with the reasons of a failed boot.
func TestEveryCheckCanBeAsked(t *testing.T) {
	for _, c := range role.Set(role.All()).Checks() {
		switch c.Probe {
		case role.UnitActive, role.APIReady, role.NodeReady:
		default:
			if target, err := url.Parse(string(c.Probe)); err != nil || target.Scheme != "http" || target.Hostname() != "127.0.0.1" || target.Port() == "" {
				t.Errorf("check %s: nothing here asks %q", c.Name, c.Probe)
			}
		}
	}
	for _, u := range role.Set(role.All()).Units() {
		if r := reason.Reason(u.Reason); r != "" && !slices.Contains(reason.All(), r) {
			t.Errorf("unit %s: %q is no reason", u.Name, r)
		}
	}
}
