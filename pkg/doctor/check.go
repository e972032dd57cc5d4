// Package doctor judges a deployed DNS function: what is there against what the template says and what
// the function needs.
//
// Its rule: values to values. What was read (Facts) and what is wanted become a list of checks, every one of
// them, also where a part could not be read: that is a finding, and not the end.
package doctor

import (
	"errors"
	"fmt"
)

// State is what a check found.
type State string

// The states. A Warning is what does not keep the records from being true, or what is not known.
const (
	OK      State = "ok"
	Warning State = "warning"
	Error   State = "error"
)

// Check is one thing that was looked at.
type Check struct {
	// Name is the path of it: "queue.redrive", "rules.sweep.state".
	Name  string `json:"name"`
	State State  `json:"state"`
	Text  string `json:"text"`
	// Next is what to do, empty where nothing is.
	Next string `json:"next,omitempty"`
}

// List is what a doctor says, in the order in which it looked. The zero value is empty and ready to use.
type List []Check

// Count is how many checks are in the state.
func (l List) Count(s State) (n int) {
	for _, c := range l {
		if c.State == s {
			n++
		}
	}
	return n
}

// Err is nil when no check is an error.
func (l List) Err() error {
	if n := l.Count(Error); n > 0 {
		return fmt.Errorf("%d of %d checks failed", n, len(l))
	}
	return nil
}

func (l *List) ok(name, format string, args ...any) {
	*l = append(*l, Check{Name: name, State: OK, Text: fmt.Sprintf(format, args...)})
}

func (l *List) warn(name, next, format string, args ...any) {
	*l = append(*l, Check{Name: name, State: Warning, Text: fmt.Sprintf(format, args...), Next: next})
}

func (l *List) fail(name, next, format string, args ...any) {
	*l = append(*l, Check{Name: name, State: Error, Text: fmt.Sprintf(format, args...), Next: next})
}

// ErrNotThere is an object that does not exist.
var ErrNotThere = errors.New("it is not there")

// ErrUnread is a part that could not be looked for, since another one could not be read. That one has the finding.
var ErrUnread = errors.New("it cannot be looked for")

// Refused is a part that the caller may not read.
type Refused struct {
	Permission string // "lambda:GetFunction"
	Err        error
}

func (r *Refused) Error() string { return r.Err.Error() }

func (r *Refused) Unwrap() error { return r.Err }

// Known is a part of what is deployed, or why it could not be read: an error of this package's kinds, or any other.
type Known[T any] struct {
	Value T
	Err   error
}

// get is the value; where there is none it adds the finding and reports false.
func (k Known[T]) get(l *List, name string) (T, bool) {
	if k.Err != nil {
		l.unread(name, k.Err)
	}
	return k.Value, k.Err == nil
}

// deployAgain is the next step for whatever was changed or removed by hand.
const deployAgain = "deploy the stack again: sam deploy, as the README says"

// Unread is the finding about a part that could not be read.
func Unread(name string, err error) Check {
	var l List
	l.unread(name, err)
	return l[0]
}

func (l *List) unread(name string, err error) {
	var r *Refused
	switch {
	case errors.As(err, &r):
		l.warn(name, "allow "+r.Permission+" for these credentials: hardtack lambda doctor --policy prints all that is needed",
			"not known: %v: needs %s", r, r.Permission)
	case errors.Is(err, ErrUnread):
		l.warn(name, "see the check that says why", "not known: %v", err)
	case errors.Is(err, ErrNotThere):
		l.fail(name, deployAgain, "%v", err)
	default:
		l.fail(name, "see that AWS can be reached from here, and try again", "not known: %v", err)
	}
}
