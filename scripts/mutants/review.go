package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"

	"go.yaml.in/yaml/v3"
)

// enough is the share of the mutants, without those that change nothing, that a package's tests must notice.
const enough = 0.9

// A review has what is known of a package's survivors.
type review struct {
	// Tests names directories of other packages whose tests are this one's too.
	Tests []string `yaml:"tests"`
	// Skip names tests that are not run, each with the reason.
	SkipReasons map[string]string `yaml:"skip"`
	Survivors   []reason          `yaml:"survivors"`
	Skip        []string          `yaml:"-"`
}

// A reason holds for the mutants under it.
type reason struct {
	Why string `yaml:"why"`
	// Equivalent mutants do nothing that anybody could see.
	Equivalent bool     `yaml:"equivalent"`
	Mutants    []string `yaml:"mutants"`
}

// readReviews reads the file of reviewed survivors: package to review.
func readReviews(path string) (map[string]review, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading the reviewed survivors: %w", err)
	}
	reviews := map[string]review{}
	d := yaml.NewDecoder(bytes.NewReader(text))
	d.KnownFields(true)
	if err := d.Decode(&reviews); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("reading the reviewed survivors in %s: %w", path, err)
	}
	var problems []error
	for name, r := range reviews {
		for test, why := range r.SkipReasons {
			if why == "" {
				problems = append(problems, fmt.Errorf("%s: %s: skip: %s has no reason", path, name, test))
			}
		}
		for i, s := range r.Survivors {
			if s.Why == "" || len(s.Mutants) == 0 {
				problems = append(problems, fmt.Errorf("%s: %s: survivors[%d] needs why and mutants", path, name, i))
			}
		}
		r.Skip = slices.Sorted(maps.Keys(r.SkipReasons))
		reviews[name] = r
	}
	return reviews, errors.Join(problems...)
}

func (r review) lists(name string) bool {
	return slices.ContainsFunc(r.Survivors, func(s reason) bool { return slices.Contains(s.Mutants, name) })
}

// figures are a package's row of the table.
type figures struct{ all, equivalent, noticed, reviewed int }

// sum counts the survivors by the review.
func (r review) sum(all int, survivors []string) figures {
	f := figures{all: all, noticed: all - len(survivors)}
	for _, s := range r.Survivors {
		for _, m := range s.Mutants {
			switch {
			case !slices.Contains(survivors, m):
			case s.Equivalent:
				f.equivalent++
			default:
				f.reviewed++
			}
		}
	}
	return f
}

// share is the part of the mutants that could be noticed and was; 1 where there is none.
func (f figures) share() float64 {
	if f.all == f.equivalent {
		return 1
	}
	return float64(f.noticed) / float64(f.all-f.equivalent)
}

func (f figures) row(name string) string {
	// Rounded down, so that what is too little never looks like enough.
	return fmt.Sprintf("| `%s` | %d | %d | %d | %d | %d %% |", name, f.all, f.equivalent, f.noticed, f.reviewed, int(100*f.share()))
}

// judge says what is wrong with a run: survivors that nobody has looked at, entries of the review that are not true any
// more, and too few that were noticed.
func (r review) judge(all []*mutant, survivors []string, f figures) error {
	var problems []error
	for _, name := range survivors {
		if !r.lists(name) {
			problems = append(problems, fmt.Errorf("nothing notices %q: write a test, or list it with a reason", name))
		}
	}
	for _, s := range r.Survivors {
		for _, name := range s.Mutants {
			switch {
			case !slices.ContainsFunc(all, func(m *mutant) bool { return m.name == name }):
				problems = append(problems, fmt.Errorf("the review lists %q, which is no mutant: remove it", name))
			case !slices.Contains(survivors, name):
				problems = append(problems, fmt.Errorf("the review lists %q, which is noticed: remove it", name))
			}
		}
	}
	if f.share() < enough {
		problems = append(problems, fmt.Errorf("%.1f %% of the mutants are noticed, and %.0f %% are asked for", 100*f.share(), 100*enough))
	}
	return errors.Join(problems...)
}
