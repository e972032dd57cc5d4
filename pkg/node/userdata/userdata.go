// Package userdata parses user data: the text that a machine gets when it is created, and which contains its role
// files.
//
// Its rule: Parse is a pure function of the bytes. It runs, fetches and writes nothing; it returns the files that the
// user data asks for, and everything that is wrong or left out. A write_files that both accept means the same to
// cloud-init and to Parse, so that the same user data works with either; where cloud-init would guess (an unknown
// encoding, a mode that is no number) Parse reports an error.
package userdata

import (
	"io/fs"
	"path"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/problem"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// The bounds of Parse. EC2 gives 16 KiB and a systemd credential holds 1 MiB, so that nothing real
// comes near them; they keep a crafted input from taking the memory of a small machine.
const (
	// MaxInput is the largest user data as it arrives, and the largest cloud-config once it is
	// decoded (a YAML tree takes some hundred times its text), in bytes.
	MaxInput = 1 << 20
	// MaxDecoded is how many bytes all layers and files may come to together once they are decoded, and merged.
	MaxDecoded = 16 << 20
	// MaxDepth is how deep parts and encodings may nest.
	MaxDepth = 8
	// MaxPath is how long a path may be, in bytes: as long as the kernel takes.
	MaxPath = 4095
	// MaxFindings is after how many findings no more are looked for, which is an error, since a role may be in the rest.
	MaxFindings = 100
	// MaxParts is how many parts one user data may have, at all depths together. The whole is none.
	MaxParts = 128
)

// The rules of the findings that callers tell apart.
const (
	// RuleNotRun: a part is ignored, since Hardtack runs and fetches nothing.
	RuleNotRun = "not-run"
	// RuleIgnored: a key of a cloud-config is ignored.
	RuleIgnored = "ignored-key"
	// RuleLaunchIndex: a part is for the instance with another launch index, or nobody says which one this machine has.
	RuleLaunchIndex = "launch-index"
	// RuleUnknownRole: a role file of an unknown role.
	RuleUnknownRole = "unknown-role"
)

// DefaultMode is the mode of a file without permissions, as with cloud-init.
const DefaultMode fs.FileMode = 0o644

// File is one file that the user data asks for.
type File struct {
	// Path is absolute and clean.
	Path    string
	Content []byte
	// Mode has the twelve permission bits of chmod(2), as a number: set-user-id is 0o4000.
	Mode fs.FileMode
	// User and Group are names or numbers; empty means root.
	User, Group string
	// Append: Content is appended to the image's file. A role file is never appended to, since no image has one.
	Append bool
}

// Role returns the role that the file gives a machine; ok is false for any other file.
func (f File) Role() (r role.Role, ok bool) {
	r, named, err := role.OfFile(f.Path)
	return r, named && err == nil
}

// Result is the content of user data.
type Result struct {
	// Files are in the order in which they are to be written, each path once.
	Files []File
	// Roles are the roles whose files are among Files.
	Roles role.Set
}

// Parse parses user data: plain, gzip, base64, or MIME multi-part, in any nesting. Of a cloud-config it uses
// write_files. The findings are errors, after which Result must not be used, and warnings about parts that are ignored.
// User data without any role is not an error here; Result.Roles is then empty.
//
// launchIndex is the machine's number among those that one request has started, from 0; nil if nobody says. A part may be for
// the instance with one launch index only. It is left out on the others, and is an error if the machine's is not known:
// cloud-init would then take the parts for all of them, and the machine have roles that are meant for others.
func Parse(data []byte, launchIndex *int) (Result, problem.List) {
	p := &parser{left: MaxDecoded, launchIndex: launchIndex, origins: map[*yaml.Node]origin{}}
	if len(data) > MaxInput {
		p.problems.Errorf(topName, "", "user data of %d bytes is over the bound of %d", len(data), MaxInput)
		return Result{}, p.problems
	}
	p.part(part{name: topName, data: data})
	p.readFiles()
	files := p.plan()
	p.checkPaths(files)
	var roles []role.Role
	for _, f := range files {
		if r, ok := f.Role(); ok {
			roles = append(roles, r)
		}
	}
	p.problems.Sort()
	return Result{Files: files, Roles: role.NewSet(roles...)}, p.problems
}

// topName is the name of the whole user data in findings.
const topName = "user-data"

// parser is the state shared by the layers of one user data.
type parser struct {
	problems    problem.List
	launchIndex *int
	// list is the write_files of the parts so far, nil for none, and origins where its entries were.
	list    *yaml.Node
	origins map[*yaml.Node]origin
	// entries are the entries of write_files, in order.
	entries []entry
	// left is what remains of MaxDecoded, parts how many parts there were.
	left  int
	parts int
}

// reserve counts n decoded bytes against the bound and reports whether they fit.
func (p *parser) reserve(n int) bool {
	if n > p.left {
		return false
	}
	p.left -= n
	return true
}

// plan turns the entries into files, each path once: a later entry replaces an earlier one, and one
// that appends adds to it. Deferred entries come last, as they do with cloud-init.
func (p *parser) plan() []File {
	var files []File
	at := map[string]int{}
	for _, late := range []bool{false, true} {
		for _, e := range p.entries {
			if e.deferred != late {
				continue
			}
			f := e.File
			if _, named, _ := role.OfFile(f.Path); named {
				f.Append = false
			}
			i, seen := at[f.Path]
			switch {
			case !seen:
				at[f.Path] = len(files)
				files = append(files, f)
			case !e.Append:
				files[i] = f
			default:
				f.Append = files[i].Append
				f.Content = slices.Concat(files[i].Content, f.Content)
				if !p.reserve(len(files[i].Content)) {
					p.problems.Errorf(e.part, "write_files", "%s grows over the bound of %d bytes", f.Path, MaxDecoded)
					return nil
				}
				files[i] = f
			}
		}
	}
	return files
}

// checkPaths finds role files of unknown roles and files that need another file to be a directory.
func (p *parser) checkPaths(files []File) {
	paths := map[string]bool{}
	for _, f := range files {
		paths[f.Path] = true
	}
	for _, f := range files {
		if _, _, err := role.OfFile(f.Path); err != nil {
			p.problems.Add(problem.Problem{File: topName, Field: f.Path, Rule: RuleUnknownRole,
				Text: err.Error(), Hint: "correct the name of the file; nothing is started meanwhile"})
		}
		for dir := path.Dir(f.Path); dir != "/"; dir = path.Dir(dir) {
			if _, named, _ := role.OfFile(dir); named {
				// The directory would satisfy the units' ConditionPathExists.
				p.problems.Errorf(topName, f.Path, "a role file cannot be a directory: %s", dir)
			} else if paths[dir] {
				p.problems.Errorf(topName, f.Path, "needs %s as a directory, which is written as a file", dir)
			}
		}
	}
	if dir := strings.TrimSuffix(role.Dir, "/"); paths[dir] {
		p.problems.Errorf(topName, dir, "the directory of the role files cannot be a file")
	}
}
