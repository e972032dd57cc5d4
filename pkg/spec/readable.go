package spec

import (
	"path"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/problem"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/machine"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/userdata"
)

// readable finds what machines would refuse: a group's user data are read by the code with which its machines read them.
func (f *completer) readable() {
	told := map[string]bool{} // a file of several groups is one fault
	for i, g := range f.out.Cluster.Groups {
		// Members of one group differ in their names alone.
		found, err := f.out.refusals(g.names()[0])
		if err != nil {
			f.errorf(at("groups", i), "%v", err)
		}
		for _, p := range found {
			if p.Severity == problem.Warning {
				continue
			}
			field, text := f.addition(p.Field), p.Text
			if field == "" {
				where := problem.Problem{File: p.File, Line: p.Line, Field: p.Field, Text: p.Text}
				field, text = at("groups", i), "its machines would refuse "+where.String()
			}
			if !told[field+text] {
				f.hint(field, p.Hint, "%s", text)
			}
			told[field+text] = true
		}
	}
}

// addition is the field of the operator's file at a path; empty if there is none.
func (f *completer) addition(name string) string {
	for i, a := range f.out.Cluster.FileAssets {
		if a.Path == name {
			return at("fileAssets", i) + ".path"
		}
	}
	for i, h := range f.out.Cluster.Hooks {
		if path.Join(unitDir, h.unit()) == name {
			return at("hooks", i) + ".name"
		}
	}
	return ""
}

// refusals are the findings of the machines of a group about their user data, warnings among them.
func (c *Complete) refusals(group string) (problem.List, error) {
	files, err := c.Files(group, nil)
	if err != nil {
		return nil, err
	}
	data, err := c.assemble(group, files)
	if err != nil {
		return nil, err
	}
	first := 0 // a part may be for other machines
	read, found := userdata.Parse(data, &first)
	for _, file := range read.Files {
		if file.Path == machine.Path {
			_, more := machine.Parse(machine.Path, file.Content)
			found = append(found, more...)
		}
	}
	return found, nil
}
