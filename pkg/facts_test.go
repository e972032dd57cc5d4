package pkg

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/hardtack/packer-plugin-hardtack/images"
	"github.com/hardtack/packer-plugin-hardtack/pkg/image/bake"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/imds"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// A fact is a literal that one package may spell, and what the others use in its place.
type fact struct {
	in  string
	use string
	// found reports whether a literal's value spells the fact.
	found func(value string) bool
}

func facts() []fact {
	text := func(pattern string) func(string) bool { return regexp.MustCompile(pattern).MatchString }
	names := strings.Join(strings.Fields(role.Join(role.All(), " ")), "|")
	var units []string
	ports := map[string]bool{}
	for _, r := range role.All() {
		for _, u := range r.Profile().Units {
			units = append(units, regexp.QuoteMeta(u.Name))
		}
	}
	for _, p := range role.Etcd.Ports() { // the others' numbers may stand for something else
		ports[strconv.Itoa(p.Number)] = true
	}
	var plain []string // roles that are not called like a program
	for _, r := range role.All() {
		if !slices.ContainsFunc(r.Profile().Units, func(u role.Unit) bool { return u.Name == string(r)+".service" }) {
			plain = append(plain, string(r))
		}
	}
	tags := []string{role.TagCluster, role.TagEtcdMember, role.TagEtcdMembers, role.TagInstanceRole}
	return []fact{
		{"pkg/role", "the constants of roles", func(value string) bool { return slices.Contains(plain, value) }},
		{"pkg/role", "Role.Host", text(`(^|//)(` + names + `)\.($|[<%])`)},
		{"pkg/role", "MemberHost or MemberPrefix", text(`(^|//)` + role.MemberPrefix + `($|[<%])`)},
		{"pkg/role", "Domain or Zone", text(`(^|\.)` + role.Zone + `\.?($|[:/"])`)},
		{"pkg/role", "the profile's units", text(strings.Join(units, "|"))},
		{"pkg/role", "EtcdClientPort, EtcdPeerPort or Role.Ports", func(value string) bool {
			port := value[strings.LastIndex(value, ":")+1:]
			number, _, _ := strings.Cut(port, "/")
			return ports[number]
		}},
		{"pkg/role", "the constants of tags", func(value string) bool { return slices.Contains(tags, value) }},
		{"pkg/role", "Role.File", text("^" + role.Dir + "/" + role.Prefix + "(" + names + ")")},
		{"pkg/image/bake", "DefaultLock", func(value string) bool { return value == bake.DefaultLock }},
	}
}

// elsewhere lists the files that may spell a fact of another package, with why.
var elsewhere = map[string]string{
	"pkg/dns/doctor/role.go": "it asks AWS about names that are not the cluster's",
}

// TestFactsAreSpelledOnce looks at every string and number in the code. Packages for tests write out what they expect.
func TestFactsAreSpelledOnce(t *testing.T) {
	list := facts()
	for _, root := range []string{".", "../cmd", "../lambda"} {
		err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			name := strings.TrimPrefix(filepath.ToSlash(filepath.Join("pkg", path)), "../")
			switch {
			case err != nil:
				return err
			case d.IsDir() && (strings.HasSuffix(name, "test") || d.Name() == "testdata" || name == "pkg/e2e"):
				return fs.SkipDir
			case !d.IsDir() && strings.HasSuffix(name, ".go") && !strings.HasSuffix(name, "_test.go") && elsewhere[name] == "":
				checkFacts(t, list, path, name)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

func checkFacts(t *testing.T, list []fact, path, name string) {
	t.Helper()
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, path, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(file, func(n ast.Node) bool {
		literal, ok := n.(*ast.BasicLit)
		if !ok {
			return true
		}
		value := literal.Value
		if text, err := strconv.Unquote(value); err == nil {
			value = text
		}
		for _, f := range list {
			if !strings.HasPrefix(name, f.in+"/") && f.found(value) {
				t.Errorf("%s:%d: %s: that is a fact of %s: use %s", name, files.Position(literal.Pos()).Line, literal.Value, f.in, f.use)
			}
		}
		return true
	})
}

// TestPlainFacts compares what the image's plain files repeat of the code: where the metadata service is, and the port of the
// overlay, which is the one that the kernel listens on.
func TestPlainFacts(t *testing.T) {
	service, err := url.Parse(imds.DefaultEndpoint)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"usr/lib/systemd/system/kubepods.slice.d/10-hardtack.conf": "IPAddressDeny=" + service.Host + "/32 "}
	for _, p := range role.Minions.Ports() {
		if p.Program == "" {
			want["usr/lib/hardtack/pods.nft"] = fmt.Sprintf(`iifname "cbr0" %s dport %d drop`, p.Protocol, p.Number)
		}
	}
	for file, line := range want {
		text, err := fs.ReadFile(images.FS, "rootfs/"+file)
		if err != nil || !strings.Contains(string(text), line) {
			t.Errorf("%s does not say %q, %v", file, line, err)
		}
	}
	if len(want) != 2 {
		t.Errorf("no port of a minion is the kernel's own: %v", role.Minions.Ports())
	}
}
