package unit

import (
	"bytes"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	systemd "github.com/coreos/go-systemd/v22/unit"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/problem"
)

// kinds are the suffixes of files that systemd reads as units.
var kinds = []string{"service", "slice", "target", "socket", "timer", "path", "mount", "automount", "swap"}

// Kinds lists the suffixes of files that systemd reads as units: "service".
func Kinds() []string { return slices.Clone(kinds) }

// IsUnit reports whether systemd would read a file of this name as a unit.
func IsUnit(name string) bool { return slices.Contains(kinds, Unit{Name: name}.Kind()) }

// Load reads every unit at the root of fsys, with its drop-ins (NAME.d/*.conf), sorted by name. Files of
// other kinds are left alone. A file that cannot be read as a unit gives problems and no unit.
func Load(fsys fs.FS) ([]Unit, problem.List) {
	var problems problem.List
	entries, err := fs.ReadDir(fsys, ".")
	if err != nil {
		problems.Add(problem.Problem{Rule: "syntax", Text: fmt.Sprintf("reading the directory of units: %v", err)})
		return nil, problems
	}
	var units []Unit
	for _, e := range entries {
		u := Unit{Name: e.Name(), File: e.Name()}
		if e.IsDir() || !slices.Contains(kinds, u.Kind()) {
			continue
		}
		files := append([]string{u.File}, DropIns(fsys, u.Name)...)
		before := len(problems)
		for _, file := range files {
			options, found := parseFile(fsys, file)
			problems = append(problems, found...)
			u.Options = append(u.Options, options...)
		}
		if len(problems) == before {
			units = append(units, u)
		}
	}
	return units, problems
}

// DropIns lists the drop-ins of a unit in the order in which systemd reads them.
func DropIns(fsys fs.FS, name string) []string {
	// By no pattern: the names of units have backslashes in them, for what a path has and a name must not have.
	entries, _ := fs.ReadDir(fsys, name+".d") // most units have no such directory
	var files []string
	for _, e := range entries { // sorted by name
		if path.Ext(e.Name()) == ".conf" {
			files = append(files, path.Join(name+".d", e.Name()))
		}
	}
	return files
}

func parseFile(fsys fs.FS, file string) ([]Option, problem.List) {
	data, err := fs.ReadFile(fsys, file)
	if err != nil {
		return nil, problem.List{{File: file, Severity: problem.Error, Rule: "syntax", Text: err.Error()}}
	}
	return Parse(file, data)
}

// Parse reads one unit file. go-systemd's parser says what the options are; it keeps no positions and
// differs from systemd about comments that end in a backslash or stand inside a continued line. So a scan
// by systemd's rules finds the lines, and where the two disagree the file is refused.
func Parse(file string, data []byte) ([]Option, problem.List) {
	refuse := func(line int, text, hint string) problem.List {
		return problem.List{{File: file, Line: line, Severity: problem.Error, Rule: "syntax", Text: text, Hint: hint}}
	}
	scanned, found := scan(file, data)
	if len(found) > 0 {
		return nil, found
	}
	parsed, err := systemd.DeserializeOptions(bytes.NewReader(data))
	if err != nil {
		return nil, refuse(0, fmt.Sprintf("reading the unit: %v", err), "")
	}
	const hint = "keep comments out of continued lines, and a backslash off a comment's end"
	for i := range max(len(scanned), len(parsed)) {
		switch {
		case i >= len(scanned):
			return nil, refuse(0, fmt.Sprintf("%s= is an option for some readers of this file and not for systemd", parsed[i].Name), hint)
		case i >= len(parsed) || !sameOption(scanned[i], *parsed[i]):
			return nil, refuse(scanned[i].Line, "readers of this file disagree about what this line says", hint)
		}
	}
	return scanned, nil
}

// sameOption compares without regard to how continued lines are joined.
func sameOption(o Option, p systemd.UnitOption) bool {
	plain := strings.ReplaceAll(p.Value, "\\\n", " ")
	return o.Section == p.Section && o.Name == p.Name &&
		slices.Equal(strings.Fields(o.Value), strings.Fields(plain))
}
