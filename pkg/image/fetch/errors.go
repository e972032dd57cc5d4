package fetch

import (
	"fmt"
	"net/http"
	"strings"
	"time"
)

// UnavailableError means that something cannot be fetched: its server is unreachable or does not have it, or the lock
// names no source. It is the only error after which Auto builds from modules.
type UnavailableError struct {
	What string // the URL, or the name of what was requested
	Err  error
}

func (e *UnavailableError) Error() string { return e.What + ": " + e.Err.Error() }

func (e *UnavailableError) Unwrap() error { return e.Err }

// line returns the error in one line.
func (e *UnavailableError) line() string { return strings.Join(strings.Fields(e.Error()), " ") }

// RejectedError means that a download differs from the lock.
type RejectedError struct {
	URL string
	// What differs ("size", "digest"), its value in the lock, and the actual one.
	What, Want, Got string
	// Hint is the next step; may be empty.
	Hint string
}

func (e *RejectedError) Error() string {
	text := fmt.Sprintf("%s has the wrong %s: the lock says %s, it is %s", e.URL, e.What, e.Want, e.Got)
	if e.Hint != "" {
		text += " (" + e.Hint + ")"
	}
	return text
}

// tryError is a failed attempt to transfer a file: no response, a response without the file, or one that broke off.
// Wrong content, and errors of storing it, are other errors, which are not retried.
type tryError struct {
	what string // prefix of err in the message
	err  error
	// limit is the number of attempts after which this failure is final; 1: at once.
	limit int
	// after is the server's Retry-After; 0 if it sent none.
	after time.Duration
	// got is the number of bytes that no attempt before had. If there are any, the count of attempts starts again. Others do not
	// count: a server that always breaks off at the same byte would be asked for ever.
	got int64
	// unreachable means that there was no response: the host gets no more requests.
	unreachable bool
}

func (e *tryError) Error() string { return e.what + e.err.Error() }

func (e *tryError) Unwrap() error { return e.err }

// refused is an HTTP response without the file. It is retried after a request timeout, too many requests, and every
// error of the server's own.
func refused(code int, after time.Duration) error {
	e := &tryError{err: fmt.Errorf("%d %s", code, http.StatusText(code)), limit: 1, after: after}
	temporary := code == http.StatusRequestTimeout || code == http.StatusTooManyRequests || code >= http.StatusInternalServerError
	if temporary && after <= maxRetryAfter {
		e.limit = statusTries
	}
	return e
}

// unanswered is a request without a response. final means that retrying cannot help.
func unanswered(err error, final bool) error {
	e := &tryError{err: err, limit: connectTries, unreachable: true}
	if final {
		e.limit = 1
	}
	return e
}

// lost is a response that broke off after n bytes that no attempt before had.
func lost(err error, n int64) error {
	return &tryError{what: "connection lost: ", err: err, limit: statusTries, got: n}
}
