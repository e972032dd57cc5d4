package build

import "testing"

// inlined says whether the compiler has put a small function into the one that calls it.
const inlined = tinyModule + `import (
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
		if got := says(t, b, c); got != test.want+"\n" {
			t.Errorf("%q: the program says %q, not %q", test.flags, got, test.want)
		}
	}
}
