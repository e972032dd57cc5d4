package awsfake

import (
	"errors"
	"fmt"
	"sync"
	"time"
)

// ErrReplyLost is the error of a Go call that was carried out and whose answer was lost (Fault.LoseReply). Over HTTP
// the connection is closed without an answer.
var ErrReplyLost = errors.New("the connection was closed before the answer came")

// Error is an API's refusal of a call; the call changed nothing.
type Error struct {
	// Status is the HTTP status: 400, 403, 404, 500 …
	Status int
	// Code is AWS's: "InvalidChangeBatch", "Throttling".
	Code    string
	Message string
	// Reason is the second error code of the APIs that have two, such as "SNAPSHOT_NOT_FOUND"; empty for others.
	Reason string
}

// Error returns "Code: Message", as AWS's tools print it.
func (e *Error) Error() string { return fmt.Sprintf("%s: %s", e.Code, e.Message) }

// refuse returns an Error that is the caller's fault (status 400).
func refuse(code, format string, args ...any) *Error {
	return &Error{Status: 400, Code: code, Message: fmt.Sprintf(format, args...)}
}

// Throttled returns the refusal of a call beyond the account's rate. Each service answers it with its own code:
// ThrottlingException, RequestLimitExceeded …
func Throttled() *Error { return refuse("Throttling", "Rate exceeded") }

// forService returns e with the code that a service uses for it.
func (e *Error) forService(service string) *Error {
	if e.Code != "Throttling" {
		return e
	}
	switch service {
	case "ebs":
		return &Error{Status: 400, Code: "RequestThrottledException", Reason: "ACCOUNT_THROTTLED", Message: "Rate exceeded"}
	case "ssm":
		return refuse("ThrottlingException", "Rate exceeded")
	case "ec2":
		return &Error{Status: 503, Code: "RequestLimitExceeded", Message: "Request limit exceeded."}
	case "s3":
		return &Error{Status: 503, Code: "SlowDown", Message: "Please reduce your request rate."}
	case "sqs":
		return &Error{Status: 403, Code: "RequestThrottled", Message: "Request is throttled."}
	}
	return e
}

// Unavailable returns the refusal of a service that has failed (status 503).
func Unavailable() *Error {
	return &Error{Status: 503, Code: "ServiceUnavailable", Message: "The request has failed due to a temporary failure of the server."}
}

// Call is one API call, as Faults see it.
type Call struct {
	Service string // "route53", "autoscaling", "ec2", "ebs", "sqs" …
	Action  string // "ChangeResourceRecordSets"
	// Number counts the account's calls of this action from 1.
	Number int
	At     time.Time
}

// Fault is a failure of one call. The zero Fault is none.
type Fault struct {
	// Delay passes before the call is carried out.
	Delay time.Duration
	// Refuse is answered instead of carrying the call out.
	Refuse *Error
	// LoseReply carries the call out and closes the connection without an answer.
	LoseReply bool
}

// Faults decides the fault of each call. It is asked before the account is locked, so it may call the account, and
// several goroutines may ask at once.
type Faults interface {
	Fault(Call) Fault
}

// FaultFunc is a function that implements Faults.
type FaultFunc func(Call) Fault

// Fault calls f.
func (f FaultFunc) Fault(c Call) Fault { return f(c) }

// Script has a list of faults for the next calls of each action; calls after the list's end have none. The zero Script
// is empty and ready to use.
type Script struct {
	mu   sync.Mutex
	next map[string][]Fault
}

// Add appends faults for the next calls of action; a zero Fault lets one call pass.
func (s *Script) Add(action string, faults ...Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.next == nil {
		s.next = map[string][]Fault{}
	}
	s.next[action] = append(s.next[action], faults...)
}

// Fault removes and returns the first fault left for the action.
func (s *Script) Fault(c Call) Fault {
	s.mu.Lock()
	defer s.mu.Unlock()
	left := s.next[c.Action]
	if len(left) == 0 {
		return Fault{}
	}
	s.next[c.Action] = left[1:]
	return left[0]
}
