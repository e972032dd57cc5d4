package lock

import (
	"fmt"
	"maps"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/problem"
	"github.com/hardtack/packer-plugin-hardtack/pkg/base/problem/yamlfile"
)

// Architectures lists the architectures that a lock can hold, as GOARCH.
func Architectures() []string { return []string{"amd64", "arm64"} }

var (
	nameForm    = regexp.MustCompile(`^[a-z0-9]+([._-][a-z0-9]+)*$`)
	digestForm  = regexp.MustCompile(`^(sha256:[0-9a-f]{64}|sha512:[0-9a-f]{128})$`)
	ociForm     = regexp.MustCompile(`^oci://[a-z0-9.-]+(:[0-9]+)?/[a-z0-9._/-]+:[A-Za-z0-9_][A-Za-z0-9._-]*$`)
	packageForm = regexp.MustCompile(`^[a-z0-9-]+(\.[a-z0-9-]+)+(/[A-Za-z0-9][A-Za-z0-9._-]*)+$`)
	sourceForm  = regexp.MustCompile(`^modules/[a-z0-9][a-z0-9._-]*\.txtar$`)
)

// validator collects findings; lines maps a field path to its line, refused holds the lines that
// have a finding of the decoder, and hosts the paths of programs that serve files of other components.
type validator struct {
	file     string
	lines    map[string]int
	refused  map[int]bool
	hosts    map[string]bool
	problems *problem.List
}

// errorf adds a finding about field; where the field is missing, the line is that of the nearest
// parent that is there.
func (v validator) errorf(field, format string, args ...any) {
	line, parent := v.lines[field], field
	for line == 0 && parent != "" {
		parent = parent[:max(0, strings.LastIndexAny(parent, ".["))]
		line = v.lines[parent]
	}
	if v.refused[line] {
		return
	}
	v.problems.Add(problem.Problem{File: v.file, Line: line, Field: field, Rule: "lock", Text: fmt.Sprintf(format, args...)})
}

// required reports an empty value.
func (v validator) required(field, value string) bool {
	if value == "" {
		v.errorf(field, "is missing")
	}
	return value != ""
}

func (v validator) name(field, value string) {
	if v.required(field, value) && !nameForm.MatchString(value) {
		v.errorf(field, "%q is not a name: small letters and digits, joined by - . or _", value)
	}
}

// https reports what is not an absolute https URL without user, query or fragment.
func (v validator) https(field, value string) {
	if !v.required(field, value) {
		return
	}
	u, err := url.Parse(value)
	if err != nil || u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" {
		v.errorf(field, "%q is not a plain https:// URL", value)
	}
}

// unique reports a value that another field already has; seen maps values to the field that has them.
func (v validator) unique(seen map[string]string, field, value string) {
	if first, ok := seen[value]; ok && value != "" {
		v.errorf(field, "%q is already at %s", value, first)
		return
	}
	seen[value] = field
}

func (v validator) absolute(field, value string) {
	switch {
	case !v.required(field, value):
	case !path.IsAbs(value) || path.Clean(value) != value || value == "/":
		v.errorf(field, "%q is not an absolute, clean path", value)
	}
}

func (v validator) lock(l *Lock) {
	if l.Schema != Schema {
		v.errorf("schema", "is %d, but this program reads %d", l.Schema, Schema)
	}
	v.name("name", l.Name)
	if len(l.Components) == 0 && len(l.Over) < 2 {
		v.errorf("components", "is empty")
	}
	for i, name := range l.Over {
		v.required(yamlfile.At("over", i), name)
	}
	v.allPins(l)
	v.hosts = map[string]bool{}
	for _, c := range l.Components {
		for _, f := range c.Files {
			v.hosts[f.Within] = true
		}
	}
	names, paths := map[string]string{}, map[string]string{}
	for i, c := range l.Components {
		field := yamlfile.At("components", i)
		v.unique(names, field+".name", c.Name)
		v.component(field, c)
		for j, f := range c.Files {
			v.unique(paths, yamlfile.At(field+".files", j)+".path", f.Path)
		}
		if c.Modules == nil {
			continue
		}
		for j, p := range c.Modules.Programs {
			if p.Path != "" {
				v.unique(paths, yamlfile.At(field+".modules.programs", j)+".path", p.Path)
			}
		}
	}
}

func (v validator) component(field string, c Component) {
	v.name(field+".name", c.Name)
	v.required(field+".version", c.Version)
	v.required(field+".licence", c.Licence)
	v.https(field+".homepage", c.Homepage)
	if len(c.Files) == 0 {
		v.errorf(field+".files", "is empty")
	}
	names := map[string]string{}
	for i, f := range c.Files {
		f, file := f, yamlfile.At(field+".files", i)
		v.name(file+".name", f.Name)
		v.unique(names, file+".name", f.Name)
		v.absolute(file+".path", f.Path)
		if f.Mode == 0 {
			v.errorf(file+".mode", "is missing or 0")
		}
		switch {
		case (f.Within == "") != (c.Files[0].Within == ""):
			v.errorf(file+".within", "either all files of a component are within other programs, or none")
		case f.Within != "" && c.Modules == nil:
			v.errorf(file+".within", "only what is compiled from modules can be within another program")
		case f.Within != "":
			v.absolute(file+".within", f.Within)
		}
	}
	if len(c.Release) == 0 && c.Modules == nil {
		v.errorf(field, "has neither release nor modules: it can come from nowhere")
	}
	for _, arch := range slices.Sorted(maps.Keys(c.Release)) {
		where := field + ".release." + arch
		if !slices.Contains(Architectures(), arch) {
			v.errorf(where, "architecture %q is not one of %s", arch, strings.Join(Architectures(), ", "))
		}
		v.downloads(where, c, c.Release[arch])
	}
	if c.Modules != nil {
		v.modules(field+".modules", c)
	}
}

// fileCoverage reports names that are no File of the component, names served twice, and files not served.
type fileCoverage struct {
	v     validator
	c     Component
	first map[string]string
}

func (s fileCoverage) add(field, name string) {
	if _, ok := s.c.File(name); !ok {
		s.v.errorf(field, "%q is not the name of a file of %s", name, s.c.Name)
		return
	}
	s.v.unique(s.first, field, name)
}

func (s fileCoverage) reportMissing(field string) {
	for _, f := range s.c.Files {
		if _, ok := s.first[f.Name]; !ok && f.Name != "" {
			s.v.errorf(field, "nothing serves the file %q", f.Name)
		}
	}
}

func (v validator) downloads(field string, c Component, downloads []Download) {
	s := fileCoverage{v, c, map[string]string{}}
	for i, d := range downloads {
		at := yamlfile.At(field, i)
		v.download(at, d)
		if d.As != "" {
			s.add(at+".as", d.As)
		}
		for _, name := range slices.Sorted(maps.Keys(d.Members)) {
			s.add(at+".members."+name, name)
		}
	}
	s.reportMissing(field)
}

func (v validator) download(field string, d Download) {
	oci := strings.HasPrefix(d.URL, "oci://")
	switch {
	case oci && !ociForm.MatchString(d.URL):
		v.errorf(field+".url", "%q is not of the form oci://registry/repository:tag", d.URL)
	case !oci:
		v.https(field+".url", d.URL)
	}
	switch {
	case !v.required(field+".digest", d.Digest):
	case !digestForm.MatchString(d.Digest):
		v.errorf(field+".digest", "%q is not sha256: or sha512: with that many small hex digits", d.Digest)
	case oci && !strings.HasPrefix(d.Digest, "sha256:"):
		v.errorf(field+".digest", "an image's manifest is pinned by sha256, not %q", d.Digest)
	}
	if d.Size < 0 {
		v.errorf(field+".size", "%d is negative", d.Size)
	}
	v.https(field+".published", d.Published)
	switch {
	case (d.As == "") == (len(d.Members) == 0):
		v.errorf(field, "needs either as or members")
	case oci && d.As == "":
		v.errorf(field+".members", "an oci:// download is one file: name it by as")
	case len(d.Members) > 0 && !IsArchive(d.URL):
		v.errorf(field+".members", "only .tar.gz and .tgz have members, not %q", path.Base(d.URL))
	}
	for _, name := range slices.Sorted(maps.Keys(d.Members)) {
		member := d.Members[name]
		// Many upstream archives are made of ".", so that their names begin with "./".
		if clean := strings.TrimPrefix(member, "./"); clean == "" || path.IsAbs(clean) || path.Clean(clean) != clean || strings.HasPrefix(clean, "..") {
			v.errorf(field+".members."+name, "%q is not a clean path inside the archive", member)
		}
	}
	if s := d.Signature; s != nil {
		if oci {
			v.errorf(field+".signature", "signatures of oci:// downloads are not supported")
		}
		v.https(field+".signature.url", s.URL)
		v.https(field+".signature.certificate", s.Certificate)
		v.required(field+".signature.identity", s.Identity)
		v.https(field+".signature.issuer", s.Issuer)
	}
}

// mains checks the packages main that a program has: each gets a directory by the end of its path.
func (v validator) mains(field string, p Program) {
	if len(p.Mains) > 0 && p.Kind != "" {
		v.errorf(field+".mains", "only a Go program has them")
	}
	ends := map[string]string{}
	for i, main := range p.Mains {
		at := fmt.Sprintf("%s.mains[%d]", field, i)
		if !packageForm.MatchString(main) {
			v.errorf(at, "%q is not the import path of a package: a host with a dot, and names", main)
			continue
		}
		v.unique(ends, at, path.Base(main))
	}
}

// IsArchive reports whether the file at the URL is an archive that members are extracted from.
func IsArchive(url string) bool {
	return strings.HasSuffix(url, ".tar.gz") || strings.HasSuffix(url, ".tgz")
}

func (v validator) modules(field string, c Component) {
	m := c.Modules
	if v.required(field+".source", m.Source) && !sourceForm.MatchString(m.Source) {
		v.errorf(field+".source", "%q is not of the form modules/NAME.txtar", m.Source)
	}
	seen := map[string]string{m.Source: field + ".source"}
	for i, shared := range m.Shared {
		at := yamlfile.At(field+".shared", i)
		if !sourceForm.MatchString(shared) {
			v.errorf(at, "%q is not of the form modules/NAME.txtar", shared)
		}
		v.unique(seen, at, shared)
	}
	v.required(field+".module", m.Module)
	s := fileCoverage{v, c, map[string]string{}}
	for i, p := range m.Programs {
		at := yamlfile.At(field+".programs", i)
		if p.Kind != "" && p.Kind != "pause" {
			v.errorf(at+".kind", "%q is neither empty nor \"pause\"", p.Kind)
		}
		v.required(at+".package", p.Package)
		for j, name := range p.Names {
			s.add(fmt.Sprintf("%s.names[%d]", at, j), name)
		}
		v.mains(at, p)
		switch {
		case len(p.Names) == 0:
			v.errorf(at+".names", "is empty")
		case len(p.Names) > 1:
			v.absolute(at+".path", p.Path)
		case p.Path != "" && !v.hosts[p.Path]:
			v.errorf(at+".path", "a program of one name, with no other component's file within it, is installed at its file's path: leave this out")
		}
	}
	s.reportMissing(field + ".programs")
}
