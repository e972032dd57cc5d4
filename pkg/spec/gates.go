package spec

import (
	"maps"
	"slices"
	"strings"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/problem/near"
)

// gateFlags and gateField are where feature gates are given.
const (
	gatesFlag  = "feature-gates"
	gatesField = "featureGates"
)

// gates warns of feature gates that a component does not list. It is no error: programs list neither gates
// that are on for good nor those on their way out, and take both.
func (f *completer) gates(p *resolved, given *Component) {
	names := map[string]string{}
	if fl, ok := p.flags[gatesFlag]; ok && given.Flags[gatesFlag] != nil {
		for pair := range strings.SplitSeq(fl.text(), ",") {
			name, _, _ := strings.Cut(pair, "=")
			names[name] = join(p.name+".flags", gatesFlag)
		}
	}
	if config, ok := given.Config[gatesField].(map[string]any); ok {
		for name := range config {
			names[name] = join(p.name+".config."+gatesField, name)
		}
	}
	known := f.upstream.Gates[p.name]
	for _, name := range slices.Sorted(maps.Keys(names)) {
		short := name[strings.LastIndex(name, ":")+1:]
		if short != "" && len(known) > 0 && !slices.Contains(known, short) {
			f.warn(names[name], near.DidYouMean(short, known), "%s lists no feature gate %s", f.upstream.program(p.component), short)
		}
	}
}
