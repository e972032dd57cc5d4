package fetch

import (
	"fmt"
	"net"
	"net/http"
	"net/url"
)

// vouched is a transport that sends nothing over plain http to another machine.
type vouched struct{ inner http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (v vouched) RoundTrip(req *http.Request) (*http.Response, error) {
	if plain(req.URL) {
		return nil, &plainError{req.URL.Redacted()}
	}
	return v.inner.RoundTrip(req)
}

// plainError is an address that nobody vouches for.
type plainError struct{ address string }

func (e *plainError) Error() string {
	return fmt.Sprintf("%s is plain http: whoever is on the way to it could choose the digests that the lock then trusts"+
		" (name it by https, copy it to a directory, or accept that with --insecure-mirror)", e.address)
}

// vouchedFor returns an error for a mirror that is reached by plain http. Directories and "" are none.
func vouchedFor(mirror string) error {
	if u, err := url.Parse(mirror); err == nil && plain(u) {
		return fmt.Errorf("mirror: %w", &plainError{u.Redacted()})
	}
	return nil
}

// plain reports whether the address is plain http to another machine than this.
func plain(u *url.URL) bool {
	ip := net.ParseIP(u.Hostname())
	return u.Scheme == "http" && u.Hostname() != "localhost" && (ip == nil || !ip.IsLoopback())
}
