package awsfake

import (
	"errors"
	"fmt"
	"sync"
	"time"
)

// ErrReplyLost is what a Go caller gets when the call was carried out and its answer lost. Over HTTP
// the connection is closed without an answer.
var ErrReplyLost = errors.New("the connection was closed before the answer came")

// Error is an API's answer that a call was refused; nothing was changed.
type Error struct {
	// Status is the HTTP status: 400, 403, 404, 500 …
	Status int
	// Code is AWS's: "InvalidChangeBatch", "Throttling".
	Code    string
	Message string
	// Reason is the second word for it of the APIs that have one: "SNAPSHOT_NOT_FOUND"; empty for others.
	Reason string
}

// Error is written as the AWS tools write it.
func (e *Error) Error() string { return fmt.Sprintf("%s: %s", e.Code, e.Message) }

// refuse makes an Error of the caller's doing.
func refuse(code, format string, args ...any) *Error {
	return &Error{Status: 400, Code: code, Message: fmt.Sprintf(format, args...)}
}

// Throttled is the refusal of a call beyond the account's rate. Each service answers it by its own code:
// ThrottlingException, RequestLimitExceeded …
func Throttled() *Error { return refuse("Throttling", "Rate exceeded") }

// of is e as a service says it.
func (e *Error) of(service string) *Error {
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
	case "sqs":
		return &Error{Status: 403, Code: "RequestThrottled", Message: "Request is throttled."}
	}
	return e
}

// Unavailable is a refusal that is the service's own doing.
func Unavailable() *Error {
	return &Error{Status: 503, Code: "ServiceUnavailable", Message: "The request has failed due to a temporary failure of the server."}
}

// Call names one call for faults and counts.
type Call struct {
	Service string // "route53", "autoscaling", "ec2", "ebs", "sqs" …
	Action  string // "ChangeResourceRecordSets"
	// Number counts the account's calls of this action from 1.
	Number int
	At     time.Time
}

// Fault is what befalls a call. The zero Fault is none.
type Fault struct {
	// Delay passes before the call is carried out.
	Delay time.Duration
	// Refuse is answered instead of carrying the call out.
	Refuse *Error
	// LoseReply carries the call out and closes the connection without an answer.
	LoseReply bool
	// Stall carries the call out and keeps the connection open without an answer, until the caller gives up.
	// (A Delay that the clock does not reach stalls a call before it is carried out.)
	Stall bool
	// Corrupt carries the call out and spoils the answer's checksum or data. Only the calls about a snapshot's
	// blocks have these; others are answered as they are.
	Corrupt bool
}

// Faults decides what befalls each call. It is asked before the account is locked, so it may call the
// account itself, and by several goroutines at once.
type Faults interface {
	Fault(Call) Fault
}

// FaultFunc is a function that decides.
type FaultFunc func(Call) Fault

// Fault calls f.
func (f FaultFunc) Fault(c Call) Fault { return f(c) }

// Script lets faults befall the next calls of an action, one after another; calls beyond its end are
// left alone. The zero Script is ready.
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

// Fault takes the first fault that is left for the action.
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
