package main

import (
	"cmp"
	"context"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/hardtack/packer-plugin-hardtack/images"
	"github.com/hardtack/packer-plugin-hardtack/pkg/base/file"
	"github.com/hardtack/packer-plugin-hardtack/pkg/image/bake"
	"github.com/hardtack/packer-plugin-hardtack/pkg/image/unit"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki"
	"github.com/hardtack/packer-plugin-hardtack/pkg/spec"
	"github.com/hardtack/packer-plugin-hardtack/units"
)

// typed is a command line that is being written.
type typed struct {
	ctx   context.Context //nolint:containedctx // a value of one call, which asks a lab
	words []string
	// path are the names of the command, arguments what was written after it.
	path, arguments []string
}

// values are what a flag takes; none where it takes anything, as a file.
func (l typed) values(flag string) []candidate {
	switch flag {
	case "lock":
		return these(ownLocks(), "a built-in lock")
	case "arch":
		return these([]string{"amd64", "arm64"}, "")
	case "source":
		return these([]string{"release", "modules", "auto"}, "")
	case "kubernetes", "to":
		if flag == "to" && !slices.Contains(l.path, "upgrade") { // a rollback's is another
			return nil
		}
		return these(spec.Versions(), "a minor version")
	case "output", "o":
		return these(formats, "")
	case "format":
		return these(plotFormats, "")
	case "machines":
		return these([]string{"yes", "no"}, "")
	case "role":
		return l.roles()
	case "group", "lose-etcd":
		if slices.Contains(l.path, "pki") { // of people
			return nil
		}
		return l.groups()
	case "channel":
		channels := []string{"stable"}
		if d := l.document(); d != nil {
			channels = append(channels, d.Cluster.AWS.Channel)
		}
		slices.Sort(channels)
		return these(slices.Compact(channels), "a channel")
	case "authority":
		var names []string
		for _, a := range pki.Authorities() {
			names = append(names, path.Base(a))
		}
		return these(names, "an authority")
	case "kind":
		return these(noticeKinds(), "")
	case "name":
		if len(l.path) > 0 && l.path[0] == "lab" {
			return labNames()
		}
	}
	return nil
}

// argument is what a command takes as its next argument.
func (l typed) argument() []candidate {
	command := strings.Join(l.path, " ")
	switch {
	case command == "lab logs":
		return slices.DeleteFunc(l.machines(), func(c candidate) bool { return slices.Contains(l.arguments, c.word) })
	case command == "lab cp":
		return l.places()
	case len(l.arguments) > 0 && l.arguments[0] != "help":
		return nil
	}
	switch command {
	case "completion":
		return these([]string{"bash", "zsh", "fish"}, "")
	case "explain":
		return l.fields()
	case "etcd remove", "etcd replace", "etcd move":
		return l.members()
	case "lab exec", "lab shell", "lab kill", "lab notice":
		return l.machines()
	case "lab scale":
		return l.labGroups()
	case "lab volume wipe", "lab volume lose":
		return l.volumes()
	}
	return nil
}

// places are the machines to copy from or to, before their colon; none where a place of a machine was written: the other is a
// file here, which the shell offers.
func (l typed) places() (out []candidate) {
	if len(l.arguments) > 1 || strings.Contains(strings.Join(l.arguments, ""), ":") {
		return nil
	}
	for _, m := range l.machines() {
		out = append(out, candidate{m.word + ":", m.what})
	}
	return out
}

func these(words []string, what string) (out []candidate) {
	for _, w := range words {
		out = append(out, candidate{w, what})
	}
	return out
}

// flag is the value of a flag that was written, or empty.
func (l typed) flag(names ...string) string {
	for i, word := range l.words {
		name, value, found := strings.Cut(word, "=")
		if !isFlag(word) || !slices.Contains(names, strings.TrimLeft(name, "-")) {
			continue
		}
		rest := l.words[i+1:]
		switch {
		case found:
			return value
		case len(rest) > 1 && rest[0] == "=":
			return rest[1]
		case len(rest) > 0:
			return rest[0]
		}
	}
	return ""
}

// document is the document that the line or the environment names, or nil.
func (l typed) document() *spec.Complete {
	name := cmp.Or(l.flag("f", "file"), os.Getenv(clusterVariable))
	data, err := file.ReadUpTo(name, spec.MaxInput)
	if err != nil {
		return nil
	}
	return l.load(data)
}

func (l typed) load(data []byte) *spec.Complete {
	image, err := spec.ReadImage(units.FS, images.FS)
	if err != nil {
		return nil
	}
	d, _, err := spec.Load(image, "", data)
	if err != nil {
		return nil
	}
	return d
}

// roles are those of the document's groups, or of the units: of the directories that the line names too.
func (l typed) roles() (out []candidate) {
	if d := l.document(); d != nil {
		for _, g := range d.Groups {
			out = append(out, candidate{g.Roles.String(), "group " + g.Name})
		}
		return out
	}
	plan := bake.Plan{Units: units.FS}
	if slices.Contains(l.path, "roles") {
		plan.Layers, _ = unitLayers(l.arguments) // what is no directory has no units
	}
	_, us, _ := plan.LoadUnits() // what cannot be read yet is left out
	for _, r := range unit.NewTable(us).Roles {
		out = append(out, candidate{string(r.Role), "a role"})
	}
	return out
}

func (l typed) groups() (out []candidate) {
	if d := l.document(); d != nil {
		for _, g := range d.Groups {
			out = append(out, candidate{g.Name, g.Roles.String()})
		}
	}
	return out
}

func (l typed) members() (out []candidate) {
	if d := l.document(); d != nil {
		for _, g := range d.Groups {
			if g.Member != "" {
				out = append(out, candidate{g.Member, "a member of etcd"})
			}
		}
	}
	return out
}

// fields are the paths of the document, or of the example.
func (l typed) fields() []candidate {
	d := l.document()
	if d == nil {
		d = l.load(spec.Minimal(exampleCluster))
	}
	if d == nil {
		return nil
	}
	return these(d.Paths(""), "")
}
