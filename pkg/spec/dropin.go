package spec

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
)

// unitDir is where user data puts units and drop-ins; the reader of user data has systemd read them.
const unitDir = "/etc/systemd/system"

// dropIn is the drop-in of a component's unit on the group's machines: its whole command line, with the
// flags that cannot be changed by a later one in their places. ok is false where none is needed.
func (p resolved) dropIn(g Group) (f File, ok bool, err error) {
	command := slices.Clone(p.program.command)
	for _, name := range slices.Sorted(maps.Keys(p.flags)) {
		fl := p.flags[name]
		words := fl.words(name, g.Member)
		if p.carrier(fl, words, name) != byDropIn {
			continue
		}
		is := func(w string) bool { return w == "--"+name || strings.HasPrefix(w, "--"+name+"=") }
		if fl.image.variable != "" {
			is = func(w string) bool { return w == "$"+fl.image.variable || w == "${"+fl.image.variable+"}" }
		}
		i := slices.IndexFunc(command, is)
		if i < 0 || !path.IsAbs(command[0]) || path.Base(command[0])+".service" != p.program.unit {
			return File{}, false, fmt.Errorf("%s.flags.%s: %s does not give the flag in a way that can be replaced", p.name, name, p.program.unit)
		}
		command = slices.DeleteFunc(command, is)
		for j, w := range words {
			words[j] = unitWord(w)
		}
		command = slices.Insert(command, i, words...)
		ok = true
	}
	if !ok {
		return File{}, false, nil
	}
	text := "# The whole command line: a flag that is a list cannot be changed by a second one.\n[Service]\nExecStart=\nExecStart=" +
		strings.Join(command, " \\\n    ") + "\n"
	return File{Path: path.Join(unitDir, p.program.unit+".d", "50-hardtack-spec.conf"), Content: []byte(text)}, true, nil
}

// unitWord writes a word of a command line in a unit (systemd.service(5), "Command lines").
func unitWord(word string) string {
	word = strings.NewReplacer("%", "%%", "$", "$$").Replace(word)
	if !strings.ContainsAny(word, " \t'\"\\;") {
		return word
	}
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(word) + `"`
}
