// Command mutants puts small faults into a package, one at a time, and tells which of them the package's tests do not notice: its
// own, and those in the directories that reviewed.yaml names.
//
// Its rule: all faults of a package are compiled into each test program, and a variable of the environment switches one of
// them on. A compilation for each fault takes most of such a run's time otherwise.
//
// A fault that the tests do not notice fails the run unless reviewed.yaml lists it with a reason; so does an entry there
// that is no longer true, and a package in which too few faults are noticed.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

func main() {
	var o options
	flag.StringVar(&o.reviewed, "reviewed", "scripts/mutants/reviewed.yaml", "the file of reviewed survivors")
	flag.StringVar(&o.only, "only", "", "run only the mutants whose name contains this; nothing is judged")
	flag.StringVar(&o.last, "last", "", "run only what survived in the run with this output; nothing is judged")
	flag.BoolVar(&o.list, "list", false, "list the mutants and run nothing")
	flag.IntVar(&o.workers, "j", 2, "how many tests run at once")
	flag.Parse()
	if flag.NArg() == 0 {
		fmt.Fprintln(os.Stderr, "usage: mutants [-list] [-only TEXT] [-last OUTPUT] [-j N] PACKAGE...\n\nexample: go run ./scripts/mutants ./pkg/pki")
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := runAll(ctx, o, flag.Args(), os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

// options say what is run.
type options struct {
	reviewed   string // path of the reviewed survivors
	only, last string // empty for all mutants
	list       bool
	workers    int
}

// partial says that not all mutants are run, so that neither a share nor an entry of the review can be judged.
func (o options) partial() bool { return o.only != "" || o.last != "" }

// runAll runs the mutants of one package after the other. Its error has the failures of all of them.
func runAll(ctx context.Context, o options, dirs []string, out io.Writer) error {
	reviews, err := readReviews(o.reviewed)
	if err != nil {
		return err
	}
	var failures []error
	for _, dir := range dirs {
		name := filepath.ToSlash(filepath.Clean(dir))
		if err := runPackage(ctx, o, name, reviews[name], out); err != nil {
			failures = append(failures, fmt.Errorf("%s: %w", name, err))
		}
	}
	return errors.Join(failures...)
}

// runPackage runs the mutants of the package in the directory dir, and judges what survives by the review.
func runPackage(ctx context.Context, o options, dir string, r review, out io.Writer) error {
	p, err := mutate(ctx, "./"+dir)
	if err != nil {
		return err
	}
	chosen, err := choose(p.mutants, o)
	if err != nil {
		return err
	}
	if o.list {
		for _, m := range chosen {
			fmt.Fprintln(out, m)
		}
		return nil
	}
	b, err := build(ctx, p, r.Tests)
	if err != nil {
		return err
	}
	defer os.RemoveAll(b.scratch)
	if err := b.baseline(ctx, r.Skip, o.workers); err != nil {
		return err
	}
	var survivors []string
	done := 0
	err = b.try(ctx, chosen, o.workers, func(m *mutant) {
		if done++; done%100 == 0 {
			fmt.Fprintf(os.Stderr, "mutants: %d of %d\n", done, len(chosen))
		}
		if m.survived() {
			survivors = append(survivors, m.name)
			if !r.lists(m.name) || o.partial() {
				fmt.Fprintf(out, "%s: %s\n", m.verdict, m)
			}
		}
	})
	if err != nil {
		return err
	}
	if o.partial() {
		fmt.Fprintf(out, "%s: %d of %d survived\n", dir, len(survivors), len(chosen))
		return nil
	}
	s := r.sum(len(chosen), survivors)
	fmt.Fprintln(out, s.row(dir))
	return r.judge(p.mutants, survivors, s)
}

// choose returns the mutants that the options name.
func choose(all []*mutant, o options) ([]*mutant, error) {
	var last string
	if o.last != "" {
		text, err := os.ReadFile(o.last)
		if err != nil {
			return nil, fmt.Errorf("reading the last run's output: %w", err)
		}
		last = string(text)
	}
	chosen := slices.DeleteFunc(slices.Clone(all), func(m *mutant) bool {
		return !strings.Contains(m.name, o.only) || o.last != "" && !strings.Contains(last, ": "+m.name+"\n")
	})
	return chosen, nil
}
