package main

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

const sample = "./testdata/sample"

// What of the sample's mutants is not noticed, and why can be seen in its test.
var survivors = []string{
	`sample.go Late: minutes > 15 => minutes >= 15`,
	`sample.go Rate: Points: points => its zero value`,
	`sample.go Again: err != nil => false`,
}

// judged is the sample after its mutants have met its tests, and those of others.
func judged(t *testing.T, others ...string) []*mutant {
	t.Helper()
	p, err := mutate(t.Context(), sample)
	if err != nil {
		t.Fatal(err)
	}
	b, err := build(t.Context(), p, others)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(b.scratch) })
	b.patience = 2 * time.Second
	if err := b.baseline(t.Context(), nil, 2); err != nil {
		t.Fatal(err)
	}
	if err := b.try(t.Context(), p.mutants, 2, func(*mutant) {}); err != nil {
		t.Fatal(err)
	}
	return p.mutants
}

// A package's tests may stand in another directory.
func TestOthers(t *testing.T) {
	for _, m := range judged(t, "testdata/sample/user") {
		inLate := strings.HasPrefix(m.name, "sample.go Late: ")
		if want := slices.Contains(survivors, m.name) && !inLate; m.survived() != want {
			t.Errorf("%s: %s", m, m.verdict)
		}
	}
}

func TestSample(t *testing.T) {
	verdicts := map[string]verdict{}
	for _, m := range judged(t) {
		verdicts[m.name] = m.verdict
		if m.survived() != slices.Contains(survivors, m.name) {
			t.Errorf("%s: %s", m, m.verdict)
		}
	}
	for name, want := range map[string]verdict{
		`sample.go Sum: without i++`:                                                   timedOut,
		`sample.go Sum: without sum += numbers[i]`:                                     noticed,
		`sample.go Passed: points >= 50 => points > 50`:                                noticed,
		`sample.go Rate: return nil, errors.New("rating: no name") => return nil, nil`: noticed,
		`sample.go Late: minutes > 15 => minutes >= 15`:                                alive,
		`sample.go Again: err != nil => false`:                                         unreached,
	} {
		if verdicts[name] != want {
			t.Errorf("%s: %q, not %q", name, verdicts[name], want)
		}
	}
}

// Whoever lists survivors lists those that there are, with a reason, and no others.
func TestJudge(t *testing.T) {
	all := []*mutant{}
	for _, name := range strings.Fields("a b c d e f g h i j k l m n o p q r s t") {
		all = append(all, &mutant{name: name})
	}
	listed := func(equivalent bool, names ...string) review {
		return review{Survivors: []reason{{Why: "as it is", Equivalent: equivalent, Mutants: names}}}
	}
	for name, c := range map[string]struct {
		review    review
		survivors []string
		want      string // part of the error; empty for none
		row       string
	}{
		"all noticed":                 {review{}, nil, "", "| `p` | 20 | 0 | 20 | 0 | 100 % |"},
		"listed":                      {listed(false, "a", "b"), []string{"a", "b"}, "", "| `p` | 20 | 0 | 18 | 2 | 90 % |"},
		"not listed":                  {review{}, []string{"a"}, `nothing notices "a"`, "| `p` | 20 | 0 | 19 | 0 | 95 % |"},
		"listed and noticed":          {listed(true, "a"), nil, `"a", which is noticed`, "| `p` | 20 | 0 | 20 | 0 | 100 % |"},
		"listed and no mutant":        {listed(true, "z"), nil, `"z", which is no mutant`, "| `p` | 20 | 0 | 20 | 0 | 100 % |"},
		"too few":                     {listed(false, "a", "b", "c"), []string{"a", "b", "c"}, "85.0 % of the mutants", "| `p` | 20 | 0 | 17 | 3 | 85 % |"},
		"the equivalent do not count": {listed(true, "a", "b", "c"), []string{"a", "b", "c"}, "", "| `p` | 20 | 3 | 17 | 0 | 100 % |"},
	} {
		t.Run(name, func(t *testing.T) {
			f := c.review.sum(len(all), c.survivors)
			if got := f.row("p"); got != c.row {
				t.Errorf("the row is %s, not %s", got, c.row)
			}
			err := c.review.judge(all, c.survivors, f)
			if c.want == "" && err != nil {
				t.Errorf("a good run fails: %v", err)
			}
			if c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("the error is %v, without %s", err, c.want)
			}
		})
	}
}

// An insertion inside another stays inside, and two on one range nest.
func TestEdits(t *testing.T) {
	var e edits
	e.wrap(2, 3, "(", ")")
	e.wrap(0, 5, "[", "]")
	e.wrap(2, 3, "{", "}")
	if got, want := e.apply("ab cd"), "[ab({ })cd]"; got != want {
		t.Errorf("%s, not %s", got, want)
	}
}

// The entries of the review that is checked in have reasons.
func TestReviewed(t *testing.T) {
	if _, err := readReviews("reviewed.yaml"); err != nil {
		t.Error(err)
	}
}
