// Package awshttp wraps the HTTP client of the AWS SDK to work around one bug.
//
// Its rule: it exists for that bug only, which its test reproduces, and is deleted when the test says that it is fixed.
//
// When the headers of a response have arrived, the SDK (smithy-go 1.28.8, transport/http, ClientHandler.Handle) closes
// the request's body, while net/http may still be checking whether there is more to send. The closed body's WriteTo then
// returns io.EOF, which io.WriterTo does not allow; net/http takes it for a failed request, and closes the connection
// while the response is being read: "use of closed network connection". A response of several reads from a near server
// meets this about once in a hundred calls. The SDK retries such a call by default, which costs time and another call,
// and changes what tests count.
package awshttp

import (
	"io"
	"net/http"
)

// Doer is the SDK's interface for an HTTP client.
type Doer interface {
	Do(*http.Request) (*http.Response, error)
}

// Client wraps next; nil means a new client with Go's default settings. It is safe for concurrent use if next is.
func Client(next Doer) Doer {
	if next == nil {
		next = &http.Client{Transport: http.DefaultTransport.(*http.Transport).Clone()}
	}
	return client{next}
}

type client struct{ next Doer }

// Do hides WriteTo of the request's body: Read of a closed body behaves correctly.
func (c client) Do(r *http.Request) (*http.Response, error) {
	if _, ok := r.Body.(io.WriterTo); ok {
		r.Body = struct{ io.ReadCloser }{r.Body}
	}
	return c.next.Do(r)
}
