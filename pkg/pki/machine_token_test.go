package pki_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/hardtack/packer-plugin-hardtack/pkg/pki"
)

// TestMachineGroup has a group for each name of a node, which Kubernetes takes for a token's, and no two of one.
func TestMachineGroup(t *testing.T) {
	accepted := regexp.MustCompile(`\Asystem:bootstrappers:[a-z0-9:-]{0,255}[a-z0-9]\z`) // bootstrapapi.BootstrapGroupPattern
	seen := map[string]string{}
	for _, name := range []string{"a", "node-a", "node-a.b", "node.a-b", "node.a.b", "node-a-b", strings.Repeat("a", 242)} {
		group, err := pki.MachineGroup(name)
		if err != nil || !accepted.MatchString(group) || seen[group] != "" || !slices.Equal(pki.MachineGroups([]string{pki.GroupBootstrappers, group}), []string{group}) {
			t.Errorf("%s: %s, %v, which is %q's too", name, group, err, seen[group])
		}
		seen[group] = name
	}
	for _, name := range []string{"", "A", "a_b", "a:b", "a,b", "-a", "a-", ".a", "a.", "a..b", "a\n", "a b", strings.Repeat("a", 243)} {
		if group, err := pki.MachineGroup(name); err == nil {
			t.Errorf("%q: %s", name, group)
		}
	}
}
