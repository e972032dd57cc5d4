package unit_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
	"gotest.tools/v3/golden"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/problem"
	"github.com/hardtack/packer-plugin-hardtack/pkg/image/unit"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
	"github.com/hardtack/packer-plugin-hardtack/units"
)

// paths is a tree of the listed paths.
type paths []string

func (p paths) Has(path string) bool { return slices.Contains(p, path) }

// TestLintBadUnits runs over a directory of units for each mistake; findings.golden beside them says what
// the lint must find, and nothing else.
func TestLintBadUnits(t *testing.T) {
	cases, err := filepath.Glob("testdata/bad/*")
	if err != nil || len(cases) == 0 {
		t.Fatalf("found %d cases, error %v", len(cases), err)
	}
	tree := paths{"/usr/bin/good", "/bin/sh", "/etc/kubernetes/good"}
	for _, dir := range cases {
		t.Run(filepath.Base(dir), func(t *testing.T) {
			us, found := unit.Load(os.DirFS(dir))
			found = append(found, unit.Lint(us, tree)...)
			if len(found) == 0 {
				t.Error("no finding in units that are wrong")
			}
			var b strings.Builder
			for _, p := range found {
				if p.Severity != problem.Error {
					t.Errorf("%s has the severity %q", p, p.Severity)
				}
				b.WriteString("[" + p.Rule + "] " + p.String() + "\n")
			}
			golden.Assert(t, b.String(), filepath.Join("bad", filepath.Base(dir), "findings.golden"))
		})
	}
}

// TestLintGoodUnits finds nothing in units that look like mistakes and are none.
func TestLintGoodUnits(t *testing.T) {
	cases, err := filepath.Glob("testdata/good/*")
	if err != nil || len(cases) == 0 {
		t.Fatalf("found %d cases, error %v", len(cases), err)
	}
	for _, dir := range cases {
		us, found := unit.Load(os.DirFS(dir))
		if found = append(found, unit.Lint(us, paths{"/usr/bin/good"})...); len(us) < 2 || len(found) > 0 {
			t.Errorf("%s: %d units, %v", dir, len(us), found)
		}
	}
}

// TestFindingsPointAtTheirLine holds every position of the golden findings against the file: the line
// must have the assignment that the text names.
func TestFindingsPointAtTheirLine(t *testing.T) {
	us, _ := unit.Load(os.DirFS("testdata/bad/missing-files"))
	lines := strings.Split(readFile(t, "testdata/bad/missing-files/kubelet.service"), "\n")
	found := unit.Lint(us, paths{"/usr/bin/good", "/bin/sh", "/etc/kubernetes/good"})
	if len(found) < 5 {
		t.Fatalf("%d findings, too few to mean something", len(found))
	}
	for _, p := range found {
		name, _, _ := strings.Cut(lines[p.Line-1], "=")
		if name != "EnvironmentFile" && !strings.Contains(p.Text, name+"=") {
			t.Errorf("%s points at %q", p, lines[p.Line-1])
		}
	}
}

func readFile(t *testing.T, file string) string {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// TestRules sees to it that every rule has a case, so that none is there untried.
func TestRules(t *testing.T) {
	var all strings.Builder
	files, _ := filepath.Glob("testdata/bad/*/findings.golden")
	for _, f := range files {
		all.WriteString(readFile(t, f))
	}
	for _, rule := range []string{
		unit.RuleSyntax, unit.RuleSection, unit.RuleRole, unit.RuleTarget, unit.RuleOrder, unit.RuleDependency,
		unit.RuleEnvironment, unit.RuleExec, unit.RuleAssert, unit.RuleCycle, unit.RuleInstall, unit.RulePort,
	} {
		if !strings.Contains(all.String(), "["+rule+"]") {
			t.Errorf("no case under testdata/bad has a finding of rule %s", rule)
		}
	}
}

// verdict is a unit's conditions, and the combinations in which it starts.
type verdict struct {
	name       string
	conditions []string
	want       string
}

func verdicts() []verdict {
	const masters, minions = "/etc/sysconfig/kubernetes-masters", "/etc/sysconfig/kubernetes-minions"
	return []verdict{
		{"none", nil, "none masters minions masters+minions etcd masters+etcd minions+etcd masters+minions+etcd"},
		{"one", []string{"PathExists=" + masters}, "masters masters+minions masters+etcd masters+minions+etcd"},
		{"not", []string{"PathExists=!" + minions}, "none masters etcd masters+etcd"},
		{"both", []string{"PathExists=" + masters, "PathExists=" + minions}, "masters+minions masters+minions+etcd"},
		{"seed's minion", []string{"PathExists=" + minions, "PathExists=!" + masters}, "minions minions+etcd"},
		{"either", []string{"PathExists=|" + masters, "PathExists=|" + minions},
			"masters minions masters+minions masters+etcd minions+etcd masters+minions+etcd"},
		{"either not", []string{"PathExists=|" + masters, "PathExists=|!" + minions},
			"none masters masters+minions etcd masters+etcd masters+minions+etcd"},
		{"either and", []string{"PathExists=|" + masters, "PathExists=|" + minions, "PathExists=/etc/sysconfig/kubernetes-etcd"},
			"masters+etcd minions+etcd masters+minions+etcd"},
		{"taken back", []string{"PathExists=" + masters, "PathExists="}, "none masters minions masters+minions etcd masters+etcd minions+etcd masters+minions+etcd"},
		{"taken back by another type", []string{"PathExists=" + masters, "KernelVersion=", "PathExists=" + minions},
			"minions masters+minions minions+etcd masters+minions+etcd"},
		{"untidy path", []string{"PathExists=/etc//sysconfig/./kubernetes-masters"}, "masters masters+minions masters+etcd masters+minions+etcd"},
		{"unknown role", []string{"PathExists=/etc/sysconfig/kubernetes-master"}, ""},
		{"not an unknown role", []string{"PathExists=!/etc/sysconfig/kubernetes-master", "PathExists=" + minions},
			"minions masters+minions minions+etcd masters+minions+etcd"},
		{"any role", []string{"PathExistsGlob=/etc/sysconfig/kubernetes-*"},
			"masters minions masters+minions etcd masters+etcd minions+etcd masters+minions+etcd"},
		{"no role", []string{"PathExistsGlob=!/etc/sysconfig/kubernetes-*"}, "none"},
		{"of another type", []string{"PathIsDirectory=/", "PathExists=" + masters}, "masters masters+minions masters+etcd masters+minions+etcd"},
		{"a glob of something else", []string{"PathExistsGlob=/pro*"},
			"none masters minions masters+minions etcd masters+etcd minions+etcd masters+minions+etcd"},
		{"something else", []string{"PathExists=/", "PathExists=" + masters}, "masters masters+minions masters+etcd masters+minions+etcd"},
	}
}

// unit is the unit that has the conditions.
func (v verdict) unit() string {
	text := "[Unit]\n"
	for _, c := range v.conditions {
		text += "Condition" + c + "\n"
	}
	return text + "[Service]\nExecStart=/bin/true\n"
}

func TestStarts(t *testing.T) {
	for _, tt := range verdicts() {
		t.Run(tt.name, func(t *testing.T) {
			u := parse(t, tt.unit())
			var got []string
			for _, s := range role.Combinations() {
				if u.Starts(s) {
					got = append(got, s.String())
				}
			}
			if g := strings.Join(got, " "); g != tt.want {
				t.Errorf("starts for %q, want %q", g, tt.want)
			}
		})
	}
}

func parse(t *testing.T, text string) unit.Unit {
	t.Helper()
	us, found := unit.Load(fstest.MapFS{"x.service": {Data: []byte(text)}})
	if len(found) > 0 || len(us) != 1 {
		t.Fatalf("loading: %d units, problems %v", len(us), found)
	}
	return us[0]
}

func TestParsePositions(t *testing.T) {
	u := parse(t, "# first line\n\n[Unit]\nDescription = spaced \n  After=a.service \\\n   b.service\n; comment\n\n[Service]\nExecStart=/bin/true")
	want := []unit.Option{
		{Section: "Unit", Name: "Description", Value: "spaced", File: "x.service", Line: 4},
		{Section: "Unit", Name: "After", Value: "a.service     b.service", File: "x.service", Line: 5},
		{Section: "Service", Name: "ExecStart", Value: "/bin/true", File: "x.service", Line: 10},
	}
	if diff := cmp.Diff(want, u.Options); diff != "" {
		t.Errorf("options differ (-want +got):\n%s", diff)
	}
}

// FuzzParse holds the parser to its promises: it does not panic, lines are in the file and ascend, and
// the line begins with the option's name.
func FuzzParse(f *testing.F) {
	seeds, err := fs.Glob(units.FS, "*")
	if err != nil {
		f.Fatal(err)
	}
	for _, name := range seeds {
		data, err := fs.ReadFile(units.FS, name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Add([]byte("[Unit]\nA=b \\\n c\n;x\\\nD=e"))
	f.Fuzz(func(t *testing.T, data []byte) {
		options, found := unit.Parse("x", data)
		if len(found) > 0 {
			return
		}
		lines := strings.Split(string(data), "\n")
		last := 0
		for _, o := range options {
			if o.Line <= last || o.Line > len(lines) {
				t.Fatalf("%s= is at line %d, after line %d of %d", o.Name, o.Line, last, len(lines))
			}
			last = o.Line
			if !strings.Contains(lines[o.Line-1], strings.Fields(o.Name + " x")[0]) && o.Name != "" {
				t.Fatalf("line %d is %q and gave %s=", o.Line, lines[o.Line-1], o.Name)
			}
		}
	})
}
