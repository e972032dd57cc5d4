package lock

import (
	"bytes"
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/problem/yamlfile"
)

// Pin is the digest of a file that is made on the machine that bakes: a member of a release's archive, or a program
// compiled from Go modules. It counts only for what it was made from, so that a pin of an older version says nothing
// about a newer one. A file without a pin is "not pinned".
type Pin struct {
	// Component is the component's name.
	Component string `yaml:"component" json:"component"`
	// File is the File.Name; of a program of several names, the first.
	File string `yaml:"file" json:"file"`
	// Archive is the digest of the download that has the file as a member. It is empty for a compiled program, for which
	// the fields up to C say what made it.
	Archive string `yaml:"archive,omitempty" json:"archive,omitempty"`
	Version string `yaml:"version,omitempty" json:"version,omitempty"`
	Arch    string `yaml:"arch,omitempty" json:"arch,omitempty"`
	// Go is the compiler's version, "go1.26.8"; empty for a program without Go code.
	Go string `yaml:"go,omitempty" json:"go,omitempty"`
	// C identifies compiler, linker and libraries of a program with C code; else empty.
	C string `yaml:"c,omitempty" json:"c,omitempty"`
	// Source identifies what is compiled and how: the archive of modules, and the lock's Program. Empty for a member; a program's
	// pin without it counts for none.
	Source string `yaml:"source,omitempty" json:"source,omitempty"`
	// Digest is "sha256:hex" of the file.
	Digest string `yaml:"digest" json:"digest"`
}

// key returns the pin without its digest.
func (p Pin) key() Pin {
	p.Digest = ""
	return p
}

// replaces reports whether the pin is of the same as an older one, or of the same program after its source was changed.
func (p Pin) replaces(older Pin) bool {
	older.Source = p.Source
	return p.key() == older.key()
}

// String says what the pin is of.
func (p Pin) String() string {
	from := strings.Join(slices.DeleteFunc([]string{p.Version, p.Arch, p.Go, p.C, p.Source}, func(s string) bool { return s == "" }), " ")
	return fmt.Sprintf("%s of %s (%s)", p.File, p.Component, cmp.Or(p.Archive, from))
}

// PinOf returns the digest that the lock pins for what p is of, or "".
func (c Component) PinOf(p Pin) string {
	for _, known := range c.Pins {
		if known.key() == p.key() {
			return known.Digest
		}
	}
	return ""
}

// Unpinned returns those of the pins that the lock does not have.
func (c Component) Unpinned(found []Pin) []Pin {
	return slices.DeleteFunc(slices.Clone(found), func(p Pin) bool { return c.PinOf(p) != "" })
}

// PinsHeading begins the part of a lock file that WithPins writes, and which ends the file.
const PinsHeading = "# What members of archives and compiled programs come to. `hardtack lock pin` writes this part."

// pinsStart finds the part with the pins, with its heading if that is there.
var pinsStart = regexp.MustCompile(`(?m)^(?:` + regexp.QuoteMeta(PinsHeading) + `\n)?pins:`)

// WithPins returns the lock file with further pins: each replaces those of the same and of what the same was compiled from
// before, and those of other versions and archives than the lock's go. Everything before the pins stays as it is.
func WithPins(file string, data []byte, found []Pin) ([]byte, error) {
	l, problems := Parse(file, data)
	if err := problems.Err(); err != nil {
		return nil, err
	}
	pins := slices.DeleteFunc(slices.Clone(l.Pins), func(p Pin) bool {
		return !l.current(p) || slices.ContainsFunc(found, func(f Pin) bool { return f.replaces(p) })
	})
	pins = append(pins, found...)
	slices.SortFunc(pins, func(a, b Pin) int {
		return cmp.Or(l.order(a.Component)-l.order(b.Component), cmp.Compare(a.Version, b.Version), cmp.Compare(a.Archive, b.Archive),
			cmp.Compare(a.Arch, b.Arch), cmp.Compare(a.Go, b.Go), cmp.Compare(a.C, b.C), cmp.Compare(a.File, b.File))
	})
	out := bytes.Clone(data)
	if at := pinsStart.FindIndex(out); at != nil {
		out = out[:at[0]]
	}
	out = append(bytes.TrimRight(out, "\n"), '\n')
	if len(pins) > 0 {
		out = append(out, "\n"+PinsHeading+"\npins:\n"...)
	}
	for _, p := range pins {
		out = append(out, "  - "+p.yaml()+"\n"...)
	}
	if _, problems := Parse(file, out); problems.Err() != nil {
		return nil, fmt.Errorf("writing the pins of %s: what came out is no lock: %w", file, problems.Err())
	}
	return out, nil
}

// yaml writes the pin on one line. None of its values needs quotes but digests, whose colons read better so.
func (p Pin) yaml() string {
	var b strings.Builder
	for _, f := range []struct{ name, value string }{
		{"component", p.Component}, {"file", p.File}, {"archive", p.Archive}, {"version", p.Version}, {"arch", p.Arch},
		{"go", p.Go}, {"c", p.C}, {"source", p.Source}, {"digest", p.Digest},
	} {
		if f.value != "" {
			fmt.Fprintf(&b, ", %s: %q", f.name, f.value)
		}
	}
	return "{" + strings.TrimPrefix(b.String(), ", ") + "}"
}

// order returns the component's place in the lock.
func (l *Lock) order(component string) int {
	return slices.IndexFunc(l.Components, func(c Component) bool { return c.Name == component })
}

// current reports whether the pin is of the lock's own version or archive.
func (l *Lock) current(p Pin) bool {
	c, ok := l.Component(p.Component)
	if !ok || p.Archive == "" {
		return ok && p.Version == c.Version
	}
	for _, downloads := range c.Release {
		if slices.ContainsFunc(downloads, func(d Download) bool { return d.Digest == p.Archive }) {
			return true
		}
	}
	return false
}

// pins gives each component its pins.
func (l *Lock) pins() {
	for i, c := range l.Components {
		for _, p := range l.Pins {
			if p.Component == c.Name {
				l.Components[i].Pins = append(l.Components[i].Pins, p)
			}
		}
	}
}

// pin checks a pin. One of another version or archive than the lock's is no error: raising a version leaves such.
func (v validator) pin(field string, l *Lock, p Pin, seen map[Pin]string) {
	c, ok := l.Component(p.Component)
	if !ok {
		v.errorf(field+".component", "%q is no component of the lock", p.Component)
		return
	}
	if _, ok := c.File(p.File); !ok {
		v.errorf(field+".file", "%q is not the name of a file of %s", p.File, c.Name)
	}
	if (p.Archive == "") == (p.Version == "" && p.Arch == "" && p.Go == "" && p.C == "" && p.Source == "") {
		v.errorf(field, "needs either archive, or version, arch, tools and source")
	}
	if p.Archive == "" && (p.Version == "" || p.Arch == "" || p.Go == "" && p.C == "") {
		v.errorf(field, "a compiled program's pin needs version, arch, and go or c")
	}
	if !strings.HasPrefix(p.Digest, "sha256:") || !digestForm.MatchString(p.Digest) {
		v.errorf(field+".digest", "%q is not sha256: with 64 small hex digits", p.Digest)
	}
	if first, ok := seen[p.key()]; ok {
		v.errorf(field, "is of the same as %s", first)
	}
	seen[p.key()] = field
}

func (v validator) allPins(l *Lock) {
	seen := map[Pin]string{}
	for i, p := range l.Pins {
		v.pin(yamlfile.At("pins", i), l, p, seen)
	}
}
