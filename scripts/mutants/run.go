package main

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/run"
)

//go:embed switch.go.txt
var switchSource string

// What became of a mutant.
type verdict string

const (
	unreached verdict = "unreached" // no test runs it
	alive     verdict = "alive"     // the tests that run it pass
	noticed   verdict = "noticed"
	timedOut  verdict = "timed out" // a test that ended before does not end any more
)

func (m *mutant) survived() bool { return m.verdict == unreached || m.verdict == alive }

// memory is what a test with a mutant may allocate, in KiB: one that no longer ends must not take the computer's.
const memory = 4 << 20

// binary is a package's tests, compiled with all mutants in it.
type binary struct {
	*program
	scratch string // a directory; its owner removes it
	suites  []suite
	tests   []test // the shortest first
	// patience is what a test may take beside ten times its time without the mutant: to begin, and for other work.
	patience time.Duration
}

// suite is the test program of one package, and the directory where it runs.
type suite struct{ file, dir string }

// test is one test without mutants.
type test struct {
	name    string
	suite   int
	takes   time.Duration
	reaches map[int]bool
}

// build compiles the tests of a package with its mutants, and those of other packages' directories that test it too.
func build(ctx context.Context, p *program, others []string) (*binary, error) {
	scratch, err := os.MkdirTemp("", "mutants-")
	if err != nil {
		return nil, fmt.Errorf("making a directory for the mutants: %w", err)
	}
	b := &binary{program: p, scratch: scratch, patience: 20 * time.Second}
	overlay := struct{ Replace map[string]string }{map[string]string{}}
	put := func(name, text string) error {
		to := filepath.Join(scratch, strconv.Itoa(len(overlay.Replace))+".go")
		overlay.Replace[name] = to
		return os.WriteFile(to, []byte(text), 0o600)
	}
	err = put(filepath.Join(p.dir, "mutant_switch.go"), strings.Replace(switchSource, "PACKAGE", p.pkgName, 1))
	for name, text := range p.files {
		err = errors.Join(err, put(name, text))
	}
	list, _ := json.Marshal(overlay)
	path := filepath.Join(scratch, "overlay.json")
	err = errors.Join(err, os.WriteFile(path, list, 0o600))
	for i, dir := range append([]string{p.dir}, others...) {
		if err != nil {
			break
		}
		if dir, err = filepath.Abs(dir); err != nil {
			break
		}
		s := suite{filepath.Join(scratch, "test-"+strconv.Itoa(i)), dir}
		b.suites = append(b.suites, s)
		// Without vet: "true || x" is what a mutant is about.
		err = run.Run(ctx, run.Command{Name: "go", Args: []string{"test", "-c", "-vet=off", "-overlay", path, "-o", s.file, "."}, Dir: dir})
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("compiling the mutants: %w", err), os.RemoveAll(scratch))
	}
	return b, nil
}

// baseline runs every test without a mutant, one at a time, and notes how long it takes and which mutants it reaches.
// Skip names tests that are left out.
func (b *binary) baseline(ctx context.Context, skip []string, workers int) error {
	var all []test
	for i := range b.suites {
		var out bytes.Buffer
		if err := b.start(ctx, i, time.Minute, &out, nil, "-test.list", "^(Test|Example|Fuzz)"); err != nil {
			return fmt.Errorf("listing the tests: %w", err)
		}
		for _, name := range strings.Fields(out.String()) {
			if !slices.Contains(skip, name) {
				all = append(all, test{name: name, suite: i})
			}
		}
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(workers)
	var mu sync.Mutex
	for i, t := range all {
		group.Go(func() error {
			path := filepath.Join(b.scratch, "reached-"+strconv.Itoa(i))
			began := time.Now()
			if err := b.start(ctx, t.suite, time.Hour, nil, []string{"HARDTACK_MUTANTS_REACHED=" + path}, "-test.run", "^"+t.name+"$"); err != nil {
				return fmt.Errorf("running %s without a mutant: %w", t.name, err)
			}
			t.takes, t.reaches = time.Since(began), map[int]bool{}
			text, err := os.ReadFile(path)
			if err != nil && !errors.Is(err, os.ErrNotExist) {
				return err
			}
			for _, id := range strings.Fields(string(text)) {
				k, err := strconv.Atoi(id)
				if err != nil {
					return fmt.Errorf("reading what %s reaches: %w", t.name, err)
				}
				t.reaches[k] = true
			}
			mu.Lock()
			defer mu.Unlock()
			b.tests = append(b.tests, t)
			return nil
		})
	}
	err := group.Wait()
	slices.SortFunc(b.tests, func(a, b test) int { return int(a.takes - b.takes) })
	return err
}

// try gives every mutant its verdict, and tells each as it comes.
func (b *binary) try(ctx context.Context, mutants []*mutant, workers int, tell func(*mutant)) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(workers)
	var mu sync.Mutex
	for _, m := range mutants {
		group.Go(func() error {
			v, err := b.verdict(ctx, m.id)
			mu.Lock()
			defer mu.Unlock()
			if m.verdict = v; err == nil {
				tell(m)
			}
			return err
		})
	}
	return group.Wait()
}

// quick is how long a test may take to be run together with others.
const quick = 2 * time.Second

// verdict runs the tests that reach a mutant: the quick ones at once, and the others one by one until one fails.
func (b *binary) verdict(ctx context.Context, id int) (verdict, error) {
	var rounds [][]test
	last := map[int]int{} // the suite's last round; its quick tests come first, and share one
	for _, t := range b.tests {
		if !t.reaches[id] {
			continue
		}
		at, ok := last[t.suite]
		if !ok || t.takes > quick {
			at = len(rounds)
			rounds = append(rounds, nil)
			last[t.suite] = at
		}
		rounds[at] = append(rounds[at], t)
	}
	if len(rounds) == 0 {
		return unreached, nil
	}
	for _, tests := range rounds {
		v, err := b.round(ctx, id, tests)
		if v == timedOut {
			// A computer that slept, or had no time for us, is no verdict.
			v, err = b.round(ctx, id, tests)
		}
		if v != alive || err != nil {
			return v, err
		}
	}
	return alive, nil
}

// round runs tests of one suite with a mutant in one process.
func (b *binary) round(ctx context.Context, id int, tests []test) (verdict, error) {
	var names []string
	limit := b.patience
	for _, t := range tests {
		names = append(names, t.name)
		limit += 10 * t.takes
	}
	within, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	err := b.start(within, tests[0].suite, 2*limit, nil, []string{"HARDTACK_MUTANT=" + strconv.Itoa(id)}, "-test.failfast", "-test.run", "^("+strings.Join(names, "|")+")$")
	switch {
	case ctx.Err() != nil:
		return "", ctx.Err()
	case within.Err() != nil:
		return timedOut, nil
	case err != nil:
		return noticed, nil
	}
	return alive, nil
}

// start runs a test program in its package's directory, as go test does.
func (b *binary) start(ctx context.Context, suite int, timeout time.Duration, out *bytes.Buffer, env []string, args ...string) error {
	c := run.Command{
		Name: "sh",
		Args: append([]string{"-c", `ulimit -d "$0" && exec "$@"`, strconv.Itoa(memory), b.suites[suite].file, "-test.timeout", timeout.String()}, args...),
		Dir:  b.suites[suite].dir,
		Env:  append(os.Environ(), env...),
	}
	if out != nil {
		c.Stdout = out
	}
	return run.Run(ctx, c)
}
