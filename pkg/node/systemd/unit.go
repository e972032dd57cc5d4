package systemd

import (
	"os"
	"path"
	"strings"
)

// ownCgroup has the control group of this process (cgroups(7), version 2): "0::/a.slice/b.service".
const ownCgroup = "/proc/self/cgroup"

func unitOf(file string) string {
	text, err := os.ReadFile(file)
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(text)) {
		group, ok := strings.CutPrefix(strings.TrimSpace(line), "0::")
		for ok && group != "/" && group != "." {
			// A unit with delegation has sub-groups, and the user manager is a unit too.
			if name := path.Base(group); strings.HasSuffix(name, ".service") {
				return name
			}
			group = path.Dir(group)
		}
	}
	return ""
}
