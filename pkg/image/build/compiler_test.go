package build

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// inlined says whether the compiler has put a small function into the one that calls it.
const inlined = `-- go.mod --
module hardtack.invalid/tiny

go 1.26

require hardtack.invalid/nothing v1.2.3
-- tiny/main.go --
package main

import (
	"fmt"
	"runtime"
)

func where() (pc [1]uintptr) {
	runtime.Callers(1, pc[:])
	return pc
}

func main() {
	pc := where()
	frame, _ := runtime.CallersFrames(pc[:]).Next()
	fmt.Println(frame.Function, frame.Func == nil)
}
`

// The compiler gets a program's flags, and of two for one package the last.
func TestCompilersFlags(t *testing.T) {
	for _, test := range []struct {
		flags []string
		want  string
	}{
		{nil, "main.where true"},
		{[]string{"all=-l"}, "main.where false"},
		{[]string{"std=-l"}, "main.where true"},
		{[]string{"all=-l", "hardtack.invalid/...="}, "main.where true"},
	} {
		b, _ := newBuilder(t, tinyAssets(inlined))
		c := tinyComponent()
		c.Modules.Programs[0].GCFlags = test.flags
		entries, _, err := b.Build(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		root := t.TempDir()
		install(t, root, entries)
		out, err := exec.CommandContext(t.Context(), filepath.Join(root, "usr/bin/one")).CombinedOutput()
		if got := strings.TrimSpace(string(out)); err != nil || got != test.want {
			t.Errorf("%q: the program says %q, not %q (%v)", test.flags, got, test.want, err)
		}
	}
}
