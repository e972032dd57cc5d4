// Package doctor checks a deployed DNS function against its template and against its needs.
//
// Its rule: values to values. It compares what was read (Facts) with what is wanted, and returns a list of all checks. A
// part that could not be read is a check that failed, and does not end the others.
package doctor

import (
	"errors"
	"fmt"
)

// State is the result of a check.
type State string

// The states. A Warning does not make records wrong, or reports something unknown.
const (
	OK      State = "ok"
	Warning State = "warning"
	Error   State = "error"
)

// Check is one check and its result.
type Check struct {
	// Name is the path of the checked fact: "queue.redrive", "rules.sweep.state".
	Name  string `json:"name"`
	State State  `json:"state"`
	Text  string `json:"text"`
	// Next is the next step; empty if there is none.
	Next string `json:"next,omitempty"`
}

// List is the result of all checks, in the order in which they ran. The zero value is empty and ready to use.
type List []Check

// Count returns the number of checks in the state.
func (l List) Count(s State) (n int) {
	for _, c := range l {
		if c.State == s {
			n++
		}
	}
	return n
}

// Err returns an error if any check has the state Error, else nil.
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

// ErrNotThere means that the object does not exist.
var ErrNotThere = errors.New("it does not exist")

// ErrUnread means that the part was not read, since it depends on another part that could not be read and has its own finding.
var ErrUnread = errors.New("it cannot be read")

// Refused is the error of a part that the caller may not read.
type Refused struct {
	Permission string // "lambda:GetFunction"
	Err        error
}

func (r *Refused) Error() string { return r.Err.Error() }

func (r *Refused) Unwrap() error { return r.Err }

// Known is a part of the deployment, or the error of reading it: one of this package's errors, or any other.
type Known[T any] struct {
	Value T
	Err   error
}

// get returns the value, or adds a finding and returns false.
func (k Known[T]) get(l *List, name string) (T, bool) {
	if k.Err != nil {
		l.unread(name, k.Err)
	}
	return k.Value, k.Err == nil
}

// deployAgain is the next step if a resource was changed or deleted by hand.
const deployAgain = "deploy the stack again: sam deploy, as lambda/README.md says"

// Unread returns the finding about a part that could not be read.
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
		l.warn(name, "see the check of the part that it depends on", "not known: %v", err)
	case errors.Is(err, ErrNotThere):
		l.fail(name, deployAgain, "%v", err)
	default:
		l.fail(name, "see that AWS can be reached from here, and try again", "not known: %v", err)
	}
}
