package spec

import (
	"encoding/base64"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/hardtack/packer-plugin-hardtack/pkg/node/machine"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/userdata"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// extras completes the operator's additions.
func (f *completer) extras() {
	f.fileAssets()
	f.hooks()
	f.userDataParts()
}

// targetRoles completes and checks the roles of an addition; none is all roles.
func (f *completer) targetRoles(field string, names []string) []string {
	for i, r := range names {
		if role.Role(r).Known() {
			continue
		}
		if _, err := role.Parse(r); err == nil && !slices.ContainsFunc(f.in.Groups, func(g GroupSpec) bool { return slices.Contains(g.Roles, r) }) {
			f.hint(at(field, i), "Hardtack's roles are "+role.Join(role.All(), ", "), "no group has the role %s", r)
		}
	}
	f.roles(field, names)
	return listOrDefault(f, field, names, nil, Origin{Default, "every role"})
}

// appliesTo reports whether an addition for some roles is for a machine that has these.
func appliesTo(names []string, roles role.Set) bool {
	return len(names) == 0 || slices.ContainsFunc(names, func(name string) bool { return roles.Has(role.Role(name)) })
}

var (
	modeForm  = regexp.MustCompile(`^0?[0-7]{3,4}$`)
	ownerForm = regexp.MustCompile(`^[a-z_][a-z0-9_-]*(:[a-z_][a-z0-9_-]*)?$`)
)

func (f *completer) fileAssets() {
	out := []FileAsset{}
	for i, a := range f.in.FileAssets {
		field := at("fileAssets", i)
		f.assetPath(field+".path", a, out)
		f.checkContent(field, a)
		a.Mode = orDefault(f, field+".mode", a.Mode, "0644", byHardtack)
		if !modeForm.MatchString(a.Mode) {
			f.errorf(field+".mode", "%q is not an octal mode such as \"0644\"", a.Mode)
		}
		a.Owner = orDefault(f, field+".owner", a.Owner, "root:root", byHardtack)
		if !ownerForm.MatchString(a.Owner) {
			f.errorf(field+".owner", "%q is not of the form user:group", a.Owner)
		}
		a.Roles = f.targetRoles(field+".roles", a.Roles)
		out = append(out, a)
	}
	f.out.Cluster.FileAssets = out
	if len(out) == 0 {
		f.out.Origins["fileAssets"] = byHardtack
	}
}

// checkContent checks the content of a file.
func (f *completer) checkContent(field string, a FileAsset) {
	f.out.Origins[field+".path"] = Origin{Kind: User}
	data, err := a.data()
	switch {
	case f.source.given[field+".content"] && f.source.given[field+".base64"]:
		f.errorf(field, "has content and base64: one of them is the file's")
	case err != nil:
		f.errorf(field+".base64", "%v", err)
	default:
		f.noSecret(field, data)
	}
	for _, name := range []string{".content", ".base64"} {
		if f.source.given[field+name] {
			f.out.Origins[field+name] = Origin{Kind: User}
		}
	}
}

// data is the content of the file.
func (a FileAsset) data() ([]byte, error) {
	if a.Base64 == "" {
		return []byte(a.Content), nil
	}
	data, err := base64.StdEncoding.DecodeString(strings.Join(strings.Fields(a.Base64), ""))
	if err != nil {
		return nil, fmt.Errorf("decoding base64: %w", err)
	}
	return data, nil
}

// assetPath checks the path of a file: it must be allowed, and not used by another file.
func (f *completer) assetPath(field string, a FileAsset, before []FileAsset) {
	_, isRole, _ := role.OfFile(a.Path)
	switch {
	case a.Path == "":
		f.errorf(field, "is missing")
		return
	case !absolute(a.Path, true) || len(a.Path) > userdata.MaxPath || strings.ContainsAny(a.Path, "\x00\n"):
		f.errorf(field, "%q is not an absolute, clean path", a.Path)
		return
	case isRole || a.Path == machine.Path || a.Path == machine.CAPath:
		f.errorf(field, "%s is written by Hardtack itself", a.Path)
	case strings.HasPrefix(a.Path, "/run/") || strings.HasPrefix(a.Path, "/tmp/") || strings.HasPrefix(a.Path, "/proc/") || strings.HasPrefix(a.Path, "/sys/") || strings.HasPrefix(a.Path, "/dev/"):
		f.errorf(field, "%s is on no disk, and would be hidden by the file system mounted there", a.Path)
	}
	if own := ownFile(a.Path); own != "" {
		f.hint(field, "say it in "+own, "%s is written by Hardtack itself", a.Path)
	}
	for _, p := range f.out.components {
		if p.document != nil && p.document.path == a.Path {
			f.hint(field, "override its fields in "+p.name+".config", "%s is the configuration document of %s", a.Path, p.name)
		}
	}
	for i, b := range before {
		if b.Path == a.Path && (len(a.Roles) == 0 || len(b.Roles) == 0 || slices.ContainsFunc(a.Roles, func(r string) bool { return slices.Contains(b.Roles, r) })) {
			f.errorf(field, "%s is already at %s, for machines of the same role", a.Path, at("fileAssets", i))
		}
	}
}

// form is what text that matches holds.
type form struct {
	what    string
	pattern *regexp.Regexp
}

// secrets are patterns of secrets, which must not be in user data: every process of a machine can read it from the
// metadata service.
var secrets = []form{
	{"a private key", regexp.MustCompile(`-----BEGIN [A-Z0-9 ]*PRIVATE KEY( BLOCK)?-----`)},
	{"a private key", regexp.MustCompile(`(?m)^\s*"?client-key-data"?\s*:\s*"?[A-Za-z0-9+/=]{16,}`)},
	{"a private key", regexp.MustCompile(`AGE-SECRET-KEY-1[0-9A-Z]{20,}`)},
	{"a secret access key", regexp.MustCompile(`(?i)aws_?secret_?access_?key["']?\s*[=:]\s*["']?[A-Za-z0-9/+]{40}`)},
	// What a token is by its own form: of Kubernetes' service accounts and OIDC, GitHub, GitLab and Slack.
	{"a token", regexp.MustCompile(`\beyJ[A-Za-z0-9_-]{10,}\.eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}`)},
	{"a token", regexp.MustCompile(`\b(gh[opsur]_[A-Za-z0-9]{36}|github_pat_[A-Za-z0-9_]{22,}|glpat-[A-Za-z0-9_-]{20}|xox[abprs]-[A-Za-z0-9-]{10,})`)},
	{"a password", regexp.MustCompile(`"auth"\s*:\s*"[A-Za-z0-9+/]{8,}={0,2}"`)},
	{"a password", regexp.MustCompile(`\b[a-z][a-z0-9+.-]*://[^/\s:@"']*:[^/\s:@"'$<{%]{3,}@`)},
}

// likely are patterns of what is a secret by its name alone, or by a form that other words have too: a bootstrap token's.
// They are no more than warnings, since who means something else has no other way to say it.
var likely = []form{
	{"a token", regexp.MustCompile(`(?m)(^|[\s"'=,])[a-z0-9]{6}\.[a-z0-9]{16}($|[\s"',])`)},
	{"a token", field(`([a-z0-9]+[_.-])*(access[_-]?|auth[_-]?|bearer[_-]?|refresh[_-]?|session[_-]?|id[_-]?|api[_-]?)?token`)},
	{"a password", field(`([a-z0-9]+[_.-])*(password|passwd|passphrase)`)},
	{"a secret", field(`([a-z0-9]+[_.-])*(client[_-]?secret|secret[_-]?key|api[_-]?key)`)},
}

// field is the form of a field or variable with that name and a value of its own: not empty, and no reference to another
// variable, no file's path and no placeholder.
func field(name string) *regexp.Regexp {
	const value = `[^\s"'$</{%*,#\[(|>&!-][^\s"',]{5,}`
	return regexp.MustCompile(`(?im)^[ \t]*(export[ \t]+|-[ \t]+|Environment=)?["']?` + name + `["']?[ \t]*(:[ \t]+|:|=|[ \t]=[ \t]*)["']?` + value + `["']?[ \t]*,?[ \t]*$`)
}

// secret says what kind of secret the data certainly holds, or "".
func secret(data []byte) string { return holds(secrets, data) }

func holds(forms []form, data []byte) string {
	for _, f := range forms {
		if f.pattern.Match(data) {
			return f.what
		}
	}
	return ""
}

// noSecret refuses a secret in what the operator adds to user data, and warns of what looks like one.
func (f *completer) noSecret(field string, data []byte) {
	const next = "bring it to the machine by the cluster's store, which its role can read and others cannot"
	if what := secret(data); what != "" {
		f.hint(field, next, "holds %s, and user data is no place for a secret", what)
	} else if what := holds(likely, data); what != "" {
		f.warn(field, next, "seems to hold %s, and every process of the machine can read user data", what)
	}
}

// assets are the files that the operator adds to a group's machines.
func (c *Complete) assets(g Group) ([]File, error) {
	var files []File
	for i, a := range c.Cluster.FileAssets {
		if !appliesTo(a.Roles, g.Roles) {
			continue
		}
		data, err := a.data()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", at("fileAssets", i), err)
		}
		f := File{Path: a.Path, Content: data}
		if a.Mode != "0644" {
			f.Mode = a.Mode
		}
		if a.Owner != "root:root" {
			f.Owner = a.Owner
		}
		files = append(files, f)
	}
	for _, h := range c.Cluster.Hooks {
		if appliesTo(h.Roles, g.Roles) && *h.Enabled {
			files = append(files, File{Path: path.Join(unitDir, h.unit()), Content: []byte(h.text(g.Roles))})
		}
	}
	return files, nil
}
