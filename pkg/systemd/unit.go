package systemd

import (
	"os"
	"path"
	"strings"
)

// ownCgroup names the control group of a process (cgroups(7), version 2): "0::/a.slice/b.service".
const ownCgroup = "/proc/self/cgroup"

func unitOf(file string) string {
	text, err := os.ReadFile(file)
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(text)) {
		group, ok := strings.CutPrefix(strings.TrimSpace(line), "0::")
		for ok && group != "/" && group != "." {
			// A unit that delegates has groups of its own below it, and the user manager is a unit too.
			if name := path.Base(group); strings.HasSuffix(name, ".service") {
				return name
			}
			group = path.Dir(group)
		}
	}
	return ""
}
