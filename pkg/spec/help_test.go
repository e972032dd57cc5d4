package spec_test

import (
	"regexp"
	"slices"
	"strings"

	"github.com/hardtack/packer-plugin-hardtack/pkg/spec"
)

// onceOnly are flags that make a program print something, or do one thing and end.
var onceOnly = []string{"help", "version", "write-config-to", "cleanup", "init-only", "config-file"}

var (
	cobraFlag    = regexp.MustCompile(`^\s+(?:-[a-zA-Z], )?--([a-z0-9-]+)(?: (\S+))?(?:\s{2,}(.*))?$`)
	cobraDefault = regexp.MustCompile(`\(default (.*?)\)(?: \(DEPRECATED: .*\))?$`)
	gate         = regexp.MustCompile(`^\s*(?:kube:)?([A-Z][A-Za-z0-9]+)=true\|false \(`)
	goFlag       = regexp.MustCompile(`^  --?([a-z0-9_-]+)(?: (\S+))?$`)
	etcdFlag     = regexp.MustCompile(`^  --([a-z0-9-]+)(?: (?:'(.*)'|(\S+)))?$`)
)

// parseCobra reads the help of Kubernetes's programs.
func parseCobra(help string) map[string]spec.UpstreamFlag {
	flags := map[string]spec.UpstreamFlag{}
	for line := range strings.Lines(help) {
		m := cobraFlag.FindStringSubmatch(strings.TrimRight(line, "\n"))
		if m == nil || slices.Contains(onceOnly, m[1]) {
			continue
		}
		flags[m[1]] = cobra(m[2], m[3], following(help, line))
	}
	return flags
}

// following is the text after a line until the next flag: a description may have several lines.
func following(help, line string) string {
	_, rest, _ := strings.Cut(help, line)
	var b strings.Builder
	for l := range strings.Lines(rest) {
		if cobraFlag.MatchString(strings.TrimRight(l, "\n")) || strings.TrimSpace(l) == "" {
			break
		}
		b.WriteString(" " + strings.TrimSpace(l))
	}
	return b.String()
}

func cobra(kind, text, more string) spec.UpstreamFlag {
	text = strings.TrimSpace(text + more)
	f := spec.UpstreamFlag{Type: kind}
	if kind == "" {
		f.Type = "bool"
	}
	switch {
	case strings.Contains(text, "ignored if a config file is specified"):
		f.Note = "ignored"
	case strings.Contains(text, "should be set via the config file"):
		f.Note = "document"
	case strings.Contains(text, "DEPRECATED"):
		f.Note = "deprecated"
	}
	if m := cobraDefault.FindStringSubmatch(text); m != nil {
		f.Default = given(m[1])
	}
	if f.Default == "" {
		f.Default = zero(f.Type)
	}
	return f
}

// given is a default as one would give it: lists without brackets, text without quotes.
func given(text string) string {
	if len(text) > 1 && text[0] == '"' && text[len(text)-1] == '"' {
		return text[1 : len(text)-1]
	}
	if len(text) > 1 && text[0] == '[' && text[len(text)-1] == ']' {
		return text[1 : len(text)-1]
	}
	return text
}

// zero is the value of a flag whose help names none.
func zero(kind string) string {
	switch kind {
	case "bool":
		return "false"
	case "int", "int32", "uint", "float", "float32", "Level":
		return "0"
	case "duration":
		return "0s"
	}
	return ""
}

// featureGates lists the feature gates of a help.
func featureGates(help string) []string {
	var names []string
	for line := range strings.Lines(help) {
		if m := gate.FindStringSubmatch(line[max(0, strings.IndexFunc(line, func(r rune) bool { return r != ' ' })):]); m != nil {
			names = append(names, m[1])
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// parseGo reads the help of Go's own flag package, which flannel has.
func parseGo(help string) map[string]spec.UpstreamFlag {
	flags := map[string]spec.UpstreamFlag{}
	name := ""
	for line := range strings.Lines(help) {
		line = strings.TrimRight(line, "\n")
		if m := goFlag.FindStringSubmatch(line); m != nil {
			if name = m[1]; slices.Contains(onceOnly, name) {
				name = ""
				continue
			}
			f := spec.UpstreamFlag{Type: m[2]}
			if m[2] == "" {
				f.Type = "bool"
			}
			f.Default = zero(f.Type)
			flags[name] = f
		} else if m := cobraDefault.FindStringSubmatch(line); m != nil && name != "" {
			f := flags[name]
			f.Default = given(m[1])
			flags[name] = f
		}
	}
	return flags
}

// parseEtcd reads etcd's help, which has no types.
func parseEtcd(help string) map[string]spec.UpstreamFlag {
	flags := map[string]spec.UpstreamFlag{}
	name := ""
	for line := range strings.Lines(help) {
		line = strings.TrimRight(line, "\n")
		if m := etcdFlag.FindStringSubmatch(line); m != nil {
			if name = m[1]; slices.Contains(onceOnly, name) {
				name = ""
				continue
			}
			f := spec.UpstreamFlag{Type: "string", Default: m[2] + m[3]}
			if f.Default == "true" || f.Default == "false" {
				f.Type = "bool"
			}
			flags[name] = f
		} else if name != "" && strings.Contains(line, "Deprecated in v3") {
			f := flags[name]
			f.Note = "deprecated"
			flags[name] = f
		}
	}
	return flags
}
