package bake

import (
	"path"
	"regexp"
	"strings"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/problem"
)

// What `systemd-analyze verify` prints begins with the unit, or with the file and line of a directive.
var (
	aboutLine = regexp.MustCompile(`^(/\S+\.[a-z]+|/\S+\.conf):(\d+): (.*)$`)
	aboutUnit = regexp.MustCompile(`^([^\s:]+\.(?:service|slice|socket|target|timer|mount|path|swap|scope|automount|device)): (.*)$`)
	namesUnit = regexp.MustCompile(`[^\s:,'"/]+\.(?:service|slice|socket|target|timer|mount|path)\b`)
	cycle     = regexp.MustCompile(`ordering cycle|break ordering`)
)

// parseVerify reads the output of systemd-analyze verify. A cycle is always an error, since a unit
// of ours may be what systemd drops; anything else is one where it is about a unit that ours says
// yes to, and a warning where it is about the distribution's.
func parseVerify(text string, ours func(unit string) bool) problem.List {
	var list problem.List
	seen := map[string]bool{}
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" || seen[line] {
			continue
		}
		seen[line] = true
		p := problem.Problem{Rule: "systemd", Text: line, Severity: problem.Warning}
		mentioned := namesUnit.FindAllString(line, -1)
		if m := aboutLine.FindStringSubmatch(line); m != nil {
			p.File, p.Line, p.Text = m[1], parseInt(m[2]), m[3]
			mentioned = append(mentioned, path.Base(m[1]), m[1])
		} else if m := aboutUnit.FindStringSubmatch(line); m != nil {
			p.File, p.Text = m[1], m[2]
		}
		for _, unit := range mentioned {
			if ours(unit) {
				p.Severity = problem.Error
			}
		}
		if cycle.MatchString(line) {
			p.Severity, p.Hint = problem.Error, "systemd would drop a job to break the cycle"
		}
		list.Add(p)
	}
	return list
}

// parseInt reads digits that a pattern has matched.
func parseInt(digits string) int {
	n := 0
	for _, d := range digits {
		n = n*10 + int(d-'0')
	}
	return n
}
