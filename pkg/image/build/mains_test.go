package build

import (
	"strings"
	"testing"
)

// upstreamMain is a package main of another project; here it is in the same module, so that nothing is fetched.
const upstreamMain = `-- their/one-tool/main.go --
// Command one-tool has a main, and the word main in other places.
package main

import "fmt"

type tool struct{}

func (tool) main() string { return "main" }

func main() { fmt.Println(tool{}.main(), other()) }
-- their/one-tool/other.go --
package main

func other() string { return "other" }
-- their/one-tool/main_test.go --
package main_test

import "example.com/not-there"
`

// TestBuildMains compiles a program that calls a package main of upstream's.
func TestBuildMains(t *testing.T) {
	caller := strings.Replace(tiny, `	"path/filepath"
)`, `	"path/filepath"

	onetool "hardtack.invalid/tiny/mains/one-tool"
)`, 1)
	caller = strings.Replace(caller, "func main() {", "func main() { onetool.Main();", 1)
	c := tinyComponent()
	c.Modules.Programs[0].Mains = []string{"hardtack.invalid/tiny/their/one-tool"}
	b, _ := newBuilder(t, tinyAssets(caller+upstreamMain))
	if got := says(t, b, c); got != "main other\none v1.2.3\n" {
		t.Errorf("it says %q", got)
	}
	for name, test := range map[string]struct{ from, to, want string }{
		"a package that is no main": {"package main\n\nfunc other", "package other\n\nfunc other", "their/one-tool"},
		"no package":                {"their/one-tool", "their/other-tool", "looking for the package hardtack.invalid/tiny/their/one-tool"},
		"no main":                   {"func main() { fmt", "func Main() { fmt", "it has 0 functions main"},
		"no Go":                     {"func other() string", "func other() strong {", "other.go:3"},
	} {
		b, _ := newBuilder(t, tinyAssets(caller+strings.ReplaceAll(upstreamMain, test.from, test.to)))
		if _, _, err := b.Build(t.Context(), c); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %q", name, err, test.want)
		}
	}
	b.Assets = tinyAssets(caller + strings.NewReplacer("package main\n", "package onetool\n", "package main_test", "package onetool_test").Replace(upstreamMain))
	if _, _, err := b.Build(t.Context(), c); err == nil || !strings.Contains(err.Error(), "is named onetool and not main: import it as it is") {
		t.Errorf("a package that can be imported: %v", err)
	}
}
