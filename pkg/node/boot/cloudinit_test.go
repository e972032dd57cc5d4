package boot

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/judges"
	"github.com/hardtack/packer-plugin-hardtack/pkg/base/run"
)

// verdict is what this reader and cloud-init make of the same user data.
type verdict string

const (
	// same: the same files with the same content, modes and owners; or both write nothing.
	same verdict = "same"
	// refused: this reader refuses all of it, and cloud-init writes something.
	refused verdict = "refused"
	// alone: this reader writes, and cloud-init nothing.
	alone verdict = "alone"
	// different: both write, and not the same.
	different verdict = "different"
)

// comparison is one case of TestCloudInit.
type comparison struct {
	name string
	data string
	// before is what the machine has; index its launch index, none below 0.
	before tree
	index  int
	want   verdict
	// roles are those that this reader gives, "" where it refuses.
	roles string
	// why says why it is not the same; each such case has one.
	why string
	// modern: an old cloud-init does something else.
	modern bool
}

// TestCloudInit compares the reader with cloud-init's own code on the same user data, case by case: what is not the same has its
// reason in the table. Without cloud-init (scripts/setup --judges), or without root, only this reader's half is looked at.
func TestCloudInit(t *testing.T) {
	t.Parallel()
	cases := cloudInitCases()
	j, missing := findJudge(t)
	names := map[string]bool{}
	var ours []outcome
	var theirs []string
	for _, c := range cases {
		if names[c.name] || (c.why == "") != (c.want == same) {
			t.Errorf("%s: a name twice, or a difference without its reason, or the other way round", c.name)
		}
		names[c.name] = true
		ours = append(ours, apply(t, c))
		theirs = append(theirs, machineOf(c).make(t))
		if want := c.roles; ours[len(ours)-1].roles != want {
			t.Errorf("%s: roles %q, want %q: %v", c.name, ours[len(ours)-1].roles, want, ours[len(ours)-1].err)
		}
	}
	if missing != "" {
		t.Skipf("%d cases, of which cloud-init's half is not judged: %s", len(cases), missing)
	}
	modern, logs := j.apply(t, cases, theirs)
	count := map[verdict]int{}
	for i, c := range cases {
		if c.modern && !modern {
			continue
		}
		got, diff := compare(t, c, ours[i], theirs[i])
		count[got]++
		if got != c.want {
			t.Errorf("%s: %s, want %s (%s)\nours: %v\ncloud-init's log: %s\n-cloud-init +ours\n%s", c.name, got, c.want, c.why, ours[i].err, logs[i], diff)
		}
	}
	t.Logf("%d cases: %v", len(cases), count)
}

// outcome is what the reader has made of a case.
type outcome struct {
	root, roles string
	err         error
}

// machineOf is the machine of a case, without its user data.
func machineOf(c comparison) tree {
	return tree{"etc/passwd": "root:x:0:0::/root:/bin/sh\netcd:x:812:813::/:/usr/sbin/nologin\n", "etc/group": "root:x:0:\nadm:x:4:\netcd:x:813:\n",
		"etc/hosts": "127.0.0.1 localhost\n", "etc/sysconfig/of-the-image": ""}.with(c.before)
}

func apply(t *testing.T, c comparison) outcome {
	t.Helper()
	root := machineOf(c).make(t)
	s := &service{id: "i-0123456789abcdef0", data: c.data, index: c.index}
	nitro.put(t, root)
	report, err := Run(t.Context(), options(root, s))
	out := outcome{root: root, roles: report.Roles.String(), err: err}
	if err != nil || len(report.Roles) == 0 {
		out.roles = ""
	}
	return out
}

// compare returns the verdict, and the difference of the two trees.
func compare(t *testing.T, c comparison, ours outcome, theirs string) (v verdict, diff string) {
	t.Helper()
	start := describeTree(t, machineOf(c).make(t))
	have, judged := describeTree(t, ours.root), describeTree(t, theirs)
	diff = cmp.Diff(judged, have)
	wrote := cmp.Diff(start, judged) != ""
	switch {
	case ours.err != nil && wrote:
		return refused, diff
	case diff == "":
		return same, diff
	case !wrote:
		return alone, diff
	}
	return different, diff
}

// ownPlaces are what only one of the two has, below which nothing counts.
var ownPlaces = []string{"sys", "run", "proc", "var/lib/hardtack", "var/lib/cloud"}

// describeTree lists a tree with types, modes, owners and contents. Directories that the case had are not told apart from new ones, since the
// comparison does that.
func describeTree(t *testing.T, root string) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := filepath.WalkDir(root, func(file string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, file)
		switch {
		case err != nil:
			return err
		case slices.Contains(ownPlaces, name):
			return fs.SkipDir
		case name == "." || name == "var" || name == "var/lib":
			return nil
		}
		out[name] = owned(t, root, name)
		switch {
		case d.Type().IsRegular():
			data, err := os.ReadFile(file)
			out[name] += fmt.Sprintf(" %q", data)
			return err
		case d.Type()&fs.ModeSymlink != 0:
			target, err := os.Readlink(file)
			out[name] += " " + target
			return err
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// judge is cloud-init: a Python that can import it, and the directory that it is in, if that is not Python's own.
type judge struct{ python, path string }

// findJudge finds cloud-init, as the system's package, or as unpacked by scripts/setup --judges; missing says what is not there.
func findJudge(t *testing.T) (j judge, missing string) {
	t.Helper()
	if os.Geteuid() != 0 {
		return j, fmt.Sprintf("its root directory is changed for each case, which user %d may not", os.Geteuid())
	}
	unpacked := judges.Path("cloud-init", "usr", "lib", "python3", "dist-packages")
	var errs []error
	for _, python := range []string{"/usr/bin/python3", "python3"} { // Debian's packages are for Debian's own
		for _, path := range []string{os.Getenv("PYTHONPATH"), unpacked} {
			j = judge{python, path}
			cmd := exec.CommandContext(t.Context(), python, "-c", "import cloudinit.config.cc_write_files, cloudinit.handlers.jinja_template")
			cmd.Env = j.environment()
			text, err := cmd.CombinedOutput()
			if err == nil {
				return j, ""
			}
			lines := strings.Split(strings.TrimSpace(string(text)), "\n")
			errs = append(errs, fmt.Errorf("%s: %w: %s", python, err, lines[len(lines)-1]))
		}
	}
	return j, "cloud-init cannot be imported (scripts/setup --judges): " + strings.ReplaceAll(errors.Join(errs...).Error(), "\n", "; ")
}

func (j judge) environment() []string {
	return append(os.Environ(), "PYTHONPATH="+j.path, "PYTHONDONTWRITEBYTECODE=1")
}

// apply has cloud-init apply each case to the directory of the same number.
func (j judge) apply(t *testing.T, cases []comparison, roots []string) (modern bool, logs []string) {
	t.Helper()
	type request struct {
		Root     string `json:"root"`
		UserData []byte `json:"user_data"`
		Index    *int   `json:"index"`
	}
	var requests []request
	for i, c := range cases {
		r := request{Root: roots[i], UserData: []byte(c.data)}
		if c.index >= 0 {
			r.Index = &c.index
		}
		requests = append(requests, r)
	}
	text, err := json.Marshal(requests)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	err = run.Run(ctx, run.Command{Name: j.python, Args: []string{"testdata/judge.py"}, Env: j.environment(), Stdin: bytes.NewReader(text), Stdout: &out})
	if err != nil {
		t.Fatal(err)
	}
	answer := struct {
		Modern bool
		Logs   []string
	}{}
	if err := json.Unmarshal(out.Bytes(), &answer); err != nil || len(answer.Logs) != len(cases) {
		t.Fatalf("%d answers for %d cases: %v", len(answer.Logs), len(cases), err)
	}
	return answer.Modern, answer.Logs
}
