package fetch

import (
	"fmt"
	"net/http"
	"strings"
	"time"
)

// unavailableError says that something cannot be had: its server cannot be reached, does not have it,
// or the lock names none. It is the one kind of error after which Auto builds from modules.
type unavailableError struct {
	what string // the URL, or what is asked for
	err  error
}

func (e *unavailableError) Error() string { return e.what + ": " + e.err.Error() }

func (e *unavailableError) Unwrap() error { return e.err }

// line is the reason in one line.
func (e *unavailableError) line() string { return strings.Join(strings.Fields(e.Error()), " ") }

// rejectedError says that a download is not what the lock says.
type rejectedError struct{ url, what, want, got, hint string }

func (e *rejectedError) Error() string {
	text := fmt.Sprintf("%s has the wrong %s: the lock says %s, it is %s", e.url, e.what, e.want, e.got)
	if e.hint != "" {
		text += " (" + e.hint + ")"
	}
	return text
}

// statusError is an HTTP answer that is not the file.
type statusError struct {
	code  int
	after time.Duration // what Retry-After asks for; 0 where it is missing
}

func (e *statusError) Error() string { return fmt.Sprintf("%d %s", e.code, http.StatusText(e.code)) }

// temporary reports whether the same request may succeed later: too many requests, a request timeout,
// and everything that the server says is its own fault.
func (e *statusError) temporary() bool {
	return e.code == http.StatusRequestTimeout || e.code == http.StatusTooManyRequests || e.code >= http.StatusInternalServerError
}

// connectError is a request that got no answer. final says that another try cannot help.
type connectError struct {
	err   error
	final bool
}

func (e *connectError) Error() string { return e.err.Error() }

func (e *connectError) Unwrap() error { return e.err }

// cutError is an answer that ended early, after n bytes.
type cutError struct {
	err error
	n   int64
}

func (e *cutError) Error() string { return "connection lost: " + e.err.Error() }

func (e *cutError) Unwrap() error { return e.err }
