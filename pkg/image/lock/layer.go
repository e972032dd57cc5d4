package lock

import (
	"fmt"
	"slices"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/problem"
	"github.com/hardtack/packer-plugin-hardtack/pkg/base/problem/yamlfile"
)

// On lays the lock over others, the first lowest, and returns the complete lock. A component takes the place of the one of
// the same name, with its pins; the others are added behind. file is only for messages: the list has the paths that two
// components of the result want.
func (l *Lock) On(file string, below ...*Lock) (*Lock, problem.List) {
	all := &Lock{Schema: l.Schema, Name: l.Name}
	for _, layer := range append(below, l) {
		for _, c := range layer.Components {
			if i := slices.IndexFunc(all.Components, func(old Component) bool { return old.Name == c.Name }); i >= 0 {
				all.Components[i] = c
			} else {
				all.Components = append(all.Components, c)
			}
		}
	}
	for _, c := range all.Components {
		all.Pins = append(all.Pins, c.Pins...)
	}
	return all, all.clashes(file, l)
}

// clashes reports paths that two components want. The field is that of the topmost lock's component.
func (l *Lock) clashes(file string, top *Lock) (found problem.List) {
	wanted := map[string]Component{}
	for _, c := range l.Components {
		for _, p := range c.paths() {
			first, taken := wanted[p]
			if !taken {
				wanted[p] = c
				continue
			}
			field := ""
			if i := slices.IndexFunc(top.Components, func(t Component) bool { return t.Name == c.Name }); i >= 0 {
				field = yamlfile.At("components", i)
			}
			found.Add(problem.Problem{File: file, Field: field, Rule: "lock", Text: fmt.Sprintf("%s puts %s into the image, and so does %s", c.Name, p, first.Name),
				Hint: fmt.Sprintf("choose another path, or call the component %s to replace that one", first.Name)})
		}
	}
	return found
}

// paths lists every path that the component can put into the image, whatever its source.
func (c Component) paths() []string {
	var paths []string
	for _, f := range c.Files {
		paths = append(paths, f.Path)
	}
	if c.Modules != nil {
		for _, p := range c.Modules.Programs {
			if p.Path != "" {
				paths = append(paths, p.Path)
			}
		}
	}
	return paths
}
