package lock

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"path"
	"path/filepath"
	"slices"
)

// Fingerprint is the first 12 hex digits of the sha256 of the lock as canonical JSON: two locks with
// the same fingerprint say the same, whatever their comments and layout. Pins are left out: they say what comes of the
// rest.
func (l *Lock) Fingerprint() string {
	// Maps are sorted by encoding/json and fields have one order, so the text is canonical; a Lock
	// holds only strings, numbers and lists of them, so it cannot fail.
	asked := *l
	asked.Pins = nil
	data, err := json.Marshal(&asked)
	if err != nil {
		panic("component: a lock that is no JSON: " + err.Error())
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])[:12]
}

// Component returns the component of that name.
func (l *Lock) Component(name string) (Component, bool) {
	for _, c := range l.Components {
		if c.Name == name {
			return c, true
		}
	}
	return Component{}, false
}

// Kubernetes is the version of the component "kubernetes" ("v1.36.3"), or "" where the lock has none.
func (l *Lock) Kubernetes() string {
	c, _ := l.Component("kubernetes")
	return c.Version
}

// The names of the two sources of a component, as Placements takes them.
const (
	FromRelease = "release"
	FromModules = "modules"
)

// Placement is one path that the lock gives the image.
type Placement struct {
	Component string `json:"component"`
	Path      string `json:"path"`
	// Mode is that of the file; 0777 for a link.
	Mode Mode `json:"mode"`
	// Link is the relative target of a symbolic link, or empty for a file.
	Link string `json:"link,omitempty"`
}

// Placements lists the paths that the lock gives the image when its components come from source
// ("release", "modules", or "auto", which is release where there is one), in the order of the lock.
func (l *Lock) Placements(source string) []Placement {
	hosts := map[string]bool{}
	for _, c := range l.Components {
		if c.compiled(source) {
			for _, p := range c.Modules.Programs {
				hosts[p.Path] = true
			}
		}
	}
	var all []Placement
	for _, c := range l.Components {
		all = append(all, c.placements(source, hosts)...)
	}
	return all
}

// compiled reports whether the component comes from modules where the source is asked for: from the other one if it lacks it.
func (c Component) compiled(source string) bool {
	return c.Modules != nil && (source == FromModules || len(c.Release) == 0)
}

// placements lists the paths that the component gives the image. A component that lacks the source is
// placed as its other source places it. From modules, a program of several names is one file at its
// own path with a relative link per name; everything else is one file per File. Of a component whose files are all within
// hosts, the paths of compiled programs, each is a link there.
func (c Component) placements(source string, hosts map[string]bool) []Placement {
	compiled := c.compiled(source)
	within := compiled && c.Within(func(program string) bool { return hosts[program] })
	var out []Placement
	if compiled && !within {
		for _, p := range c.Modules.Programs {
			if p.Path != "" {
				out = append(out, Placement{Component: c.Name, Path: p.Path, Mode: ProgramMode})
			}
		}
	}
	for _, f := range c.Files {
		place := Placement{Component: c.Name, Path: f.Path, Mode: f.Mode}
		target := ""
		switch {
		case within:
			target = f.Within
		case compiled:
			p, _ := c.Modules.program(f.Name)
			target = p.Path
		}
		if target != "" {
			place.Mode, place.Link = 0o777, RelativeLink(f.Path, target)
		}
		out = append(out, place)
	}
	return out
}

// Within reports whether every file of the component is within a program that is there.
func (c Component) Within(there func(program string) bool) bool {
	return !slices.ContainsFunc(c.Files, func(f File) bool { return f.Within == "" || !there(f.Within) })
}

// CompiledWith is the component as it is compiled where its files are within another one's programs: from that one's archives.
func (c Component) CompiledWith(host Component) Component {
	m := *c.Modules
	m.Source, m.Shared, m.Archives, m.ArchiveDigests = host.Modules.Source, host.Modules.Shared, host.Modules.Archives, host.Modules.ArchiveDigests
	c.Modules = &m
	return c
}

// ProgramMode is the mode of a program with several names, which has no File.
const ProgramMode Mode = 0o755

// File returns the file of that name.
func (c Component) File(name string) (File, bool) {
	i := slices.IndexFunc(c.Files, func(f File) bool { return f.Name == name })
	if i < 0 {
		return File{}, false
	}
	return c.Files[i], true
}

// RelativeLink returns the text of a symbolic link at the absolute path link that leads to target. A relative link also
// leads there if the root file system is mounted somewhere else.
func RelativeLink(link, target string) string {
	rel, err := filepath.Rel(path.Dir(link), target)
	if err != nil { // one of them is not absolute, which Parse refuses
		return target
	}
	return rel
}

// program returns the program that serves the file of that name.
func (m *Modules) program(name string) (Program, bool) {
	i := slices.IndexFunc(m.Programs, func(p Program) bool { return slices.Contains(p.Names, name) })
	if i < 0 {
		return Program{}, false
	}
	return m.Programs[i], true
}
