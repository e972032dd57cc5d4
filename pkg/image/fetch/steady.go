package fetch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"
)

// steady is a transport whose responses break off if nothing arrives for stallTimeout. It marks what breaks off: the
// registry library's errors do not say whether they are the connection's.
type steady struct{ inner http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (s steady) RoundTrip(req *http.Request) (*http.Response, error) {
	ctx, stop := context.WithCancelCause(req.Context())
	resp, err := s.inner.RoundTrip(req.WithContext(ctx))
	if err != nil {
		stop(nil)
		return nil, err
	}
	timer := time.AfterFunc(stallTimeout, func() { stop(fmt.Errorf("nothing arrived for %s", stallTimeout)) })
	timer.Stop()
	resp.Body = &steadyBody{resp.Body, ctx, stop, timer}
	return resp, nil
}

// steadyBody is the body of a response. Its timer runs only while it is read: the reader may be slow.
type steadyBody struct {
	io.ReadCloser
	ctx   context.Context //nolint:containedctx // the request's, of which a Read is not told
	stop  context.CancelCauseFunc
	timer *time.Timer
}

func (b *steadyBody) Read(p []byte) (int, error) {
	b.timer.Reset(stallTimeout)
	n, err := b.ReadCloser.Read(p)
	b.timer.Stop()
	if err == nil || errors.Is(err, io.EOF) {
		return n, err
	}
	if b.ctx.Err() != nil {
		err = context.Cause(b.ctx) // the timer's reason, not "context canceled"
	}
	return n, &brokenError{err}
}

// Close ends the request.
func (b *steadyBody) Close() error {
	err := b.ReadCloser.Close()
	b.stop(nil)
	return err
}

// brokenError is a response that broke off.
type brokenError struct{ err error }

func (e *brokenError) Error() string { return e.err.Error() }

func (e *brokenError) Unwrap() error { return e.err }
