// Package awshttp stands between the AWS SDK and its HTTP client.
//
// Its rule: it exists for one fault of the SDK, which its test shows, and goes when the test says that it is mended.
//
// When an answer's headers have come, the SDK (smithy-go 1.28.8, transport/http, ClientHandler.Handle) closes the
// request's body, while net/http may still be looking whether there is more of it. A closed body of the SDK's says
// io.EOF to that look, by WriteTo, of which io.WriterTo's contract says that it does not; net/http takes it for a
// failed request, and closes the connection under the answer that is being read: "use of closed network connection".
// An answer of several reads from a near server meets this about once in a hundred calls. The SDK tries such a call
// again by default, which costs the time and the call, and changes what a test counts.
package awshttp

import (
	"io"
	"net/http"
)

// Doer is what the SDK calls an HTTP client.
type Doer interface {
	Do(*http.Request) (*http.Response, error)
}

// Client is next without the fault; nil is a client of its own, with Go's default settings. It is safe for
// several goroutines where next is.
func Client(next Doer) Doer {
	if next == nil {
		next = &http.Client{Transport: http.DefaultTransport.(*http.Transport).Clone()}
	}
	return client{next}
}

type client struct{ next Doer }

// Do hides that the request's body can write itself: Read of a closed one behaves.
func (c client) Do(r *http.Request) (*http.Response, error) {
	if _, ok := r.Body.(io.WriterTo); ok {
		r.Body = struct{ io.ReadCloser }{r.Body}
	}
	return c.next.Do(r)
}
