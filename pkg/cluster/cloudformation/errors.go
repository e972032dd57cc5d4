package cloudformation

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// ErrNoStack means that no stack has the name or id.
var ErrNoStack = errors.New("there is no such stack")

// ProtectedError refuses to delete a stack with termination protection.
type ProtectedError struct{ Stack string }

func (e *ProtectedError) Error() string { return fmt.Sprintf("stack %s is protected", e.Stack) }

// StateError means that the stack is in a state in which it cannot be changed.
type StateError struct{ Stack, Status string }

func (e *StateError) Error() string {
	return fmt.Sprintf("stack %s is %s: %s", e.Stack, e.Status, remedy(e.Status))
}

// Failure means that an operation on a stack did not succeed.
type Failure struct {
	Stack  string `json:"stack"`
	Status string `json:"status"`
	// Resource is the resource that failed first, Reason why it failed; both are empty if no event names it.
	Resource string `json:"resource"`
	Type     string `json:"type"`
	Reason   string `json:"reason"`
}

func (f *Failure) Error() string {
	text := fmt.Sprintf("stack %s is %s", f.Stack, f.Status)
	if f.Resource != "" {
		text += fmt.Sprintf(": %s (%s) failed: %s", f.Resource, f.Type, f.Reason)
	}
	return text + "\n" + remedy(f.Status)
}

// OnlyDeletable reports whether a stack in this state can only be deleted.
func OnlyDeletable(status string) bool {
	return slices.Contains([]string{"ROLLBACK_COMPLETE", "ROLLBACK_FAILED", "CREATE_FAILED", "DELETE_FAILED"}, status)
}

// NeedsRollback reports whether a stack in this state needs its rollback continued before it can be changed.
func NeedsRollback(status string) bool {
	return slices.Contains([]string{"UPDATE_ROLLBACK_FAILED", "UPDATE_FAILED"}, status)
}

// remedy is the next step for a stack in this state.
func remedy(status string) string {
	switch {
	case OnlyDeletable(status):
		return "it can only be deleted"
	case NeedsRollback(status):
		return "fix the cause, then continue its rollback"
	case status == "UPDATE_ROLLBACK_COMPLETE":
		return "everything is as it was before; fix the cause and apply again"
	}
	return "its events say why"
}

// Interrupted means that the context ended while waiting. CloudFormation continues with the operation.
type Interrupted struct {
	Stack string
	Err   error
}

func (i *Interrupted) Error() string {
	return fmt.Sprintf("stopped watching: CloudFormation goes on with stack %s", i.Stack)
}

func (i *Interrupted) Unwrap() error { return i.Err }

// LossError refuses changes that would remove a resource that holds data, or all machines of a group at once.
type LossError struct {
	// Losses are the changes that are not allowed, Unneeded the allowed names that match no such change.
	Losses   []Change
	Unneeded []string
}

func (e *LossError) Error() string {
	var lines []string
	for _, c := range e.Losses {
		lines = append(lines, fmt.Sprintf("%s %s (%s) would be %s%s: that loses %s", c.Resource, c.ID, c.Type, c.fate(), c.because(), guarded[c.Type]))
	}
	for _, name := range e.Unneeded {
		lines = append(lines, name+" is allowed to be replaced, but these changes do not replace it")
	}
	return "checking the changes of the stack:\n  " + strings.Join(lines, "\n  ")
}
