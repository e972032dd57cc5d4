package spec

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/hardtack/packer-plugin-hardtack/pkg/image/unit"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

var (
	unitForm   = regexp.MustCompile(`^[A-Za-z0-9:_.@\\-]{1,200}\.(service|socket|timer|path|mount|target)$`)
	headerForm = regexp.MustCompile(`(?m)^\[[A-Za-z-]+\]\s*$`)
)

func (f *completer) hooks() {
	out := []Hook{}
	names := map[string]string{clockUnit: "network.timeServers", optionsUnit: "machines"}
	for i, h := range f.in.Hooks {
		field := at("hooks", i)
		f.out.Origins[field+".name"], f.out.Origins[field+".manifest"] = Origin{Kind: User}, Origin{Kind: User}
		f.hookName(field+".name", h, names)
		h.Before = f.units(field+".before", h.Before)
		h.After = f.units(field+".after", h.After)
		h.Requires = f.units(field+".requires", h.Requires)
		h.Roles = f.targetRoles(field+".roles", h.Roles)
		enabled := orDefault(f, field+".enabled", h.Enabled != nil && *h.Enabled, true, byHardtack)
		h.Enabled = &enabled
		f.manifest(field+".manifest", h)
		out = append(out, h)
	}
	f.out.Cluster.Hooks = out
	if len(out) == 0 {
		f.out.Origins["hooks"] = byHardtack
	}
}

// unit is the name of the unit.
func (h Hook) unit() string { return unitName(h.Name) }

// unitName adds the suffix of a service to a name that has none of a unit.
func unitName(name string) string {
	if unitForm.MatchString(name) {
		return name
	}
	return name + ".service"
}

func (f *completer) hookName(field string, h Hook, seen map[string]string) {
	name := h.unit()
	switch {
	case h.Name == "":
		f.errorf(field, "is missing")
	case !unitForm.MatchString(name):
		f.errorf(field, "%q is not the name of a unit", h.Name)
	case slices.Contains(f.image.units, name):
		f.hint(field, "give the hook another name, or change the unit by a file "+unitDir+"/"+name+".d/NAME.conf in fileAssets", "%s is a unit of the image", name)
	case seen[name] != "":
		f.errorf(field, "unit %s is already at %s", name, seen[name])
	}
	seen[name] = field
}

// units checks names of units and adds the suffix of a service where there is none.
func (f *completer) units(field string, names []string) []string {
	full := make([]string, len(names))
	for i, name := range names {
		if full[i] = unitName(name); !unitForm.MatchString(full[i]) {
			f.errorf(at(field, i), "%q is not the name of a unit", name)
		}
	}
	return listOrDefault(f, field, full, nil, byHardtack)
}

// manifest checks the unit that the hook becomes.
func (f *completer) manifest(field string, h Hook) {
	if strings.TrimSpace(h.Manifest) == "" {
		f.errorf(field, "is missing: the [Service] section, or a whole unit")
		return
	}
	f.noSecret(field, []byte(h.Manifest))
	options, problems := unit.Parse(h.unit(), []byte(h.text(nil)))
	for _, p := range problems {
		f.errorf(field, "%s", p.Text)
	}
	has := func(name string) bool {
		return slices.ContainsFunc(options, func(o unit.Option) bool { return o.Section == "Service" && strings.HasPrefix(o.Name, name) })
	}
	if len(problems) == 0 && strings.HasSuffix(h.unit(), ".service") && !has("ExecStart") {
		f.errorf(field, "has no ExecStart=")
	}
}

// text is the unit of a hook: what is written, and what Hardtack adds. It comes after the reader of user
// data, since that is what starts it; before the units that it names, which wait for the reader too.
func (h Hook) text(roles role.Set) string {
	var b strings.Builder
	b.WriteString("[Unit]\n")
	if !strings.Contains(h.Manifest, "Description=") {
		fmt.Fprintf(&b, "Description=Hook %s\n", h.Name)
	}
	b.WriteString("After=" + strings.Join(append([]string{unit.UserData}, h.After...), " ") + "\n")
	list := func(name string, units []string) {
		if len(units) > 0 {
			b.WriteString(name + "=" + strings.Join(units, " ") + "\n")
		}
	}
	list("Before", h.Before)
	list("Requires", h.Requires)
	var named []role.Role
	for _, name := range h.Roles {
		named = append(named, role.Role(name))
	}
	for _, r := range role.NewSet(named...) {
		if roles == nil || roles.Has(r) {
			b.WriteString("ConditionPathExists=|" + r.File() + "\n")
		}
	}
	manifest := strings.TrimSpace(h.Manifest)
	if !headerForm.MatchString(manifest) {
		manifest = "[Service]\n" + manifest
	}
	b.WriteString("\n" + manifest + "\n")
	if !strings.Contains(manifest, "[Install]") {
		b.WriteString("\n[Install]\nWantedBy=multi-user.target\n")
	}
	return b.String()
}
