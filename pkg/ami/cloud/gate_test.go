package cloud_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/awsfake"
)

// gate stands before an account and sees every request before it is carried out, and its answer before it is sent.
type gate struct {
	mu    sync.Mutex
	count map[string]int
	// before and after are told of a request its action, and the how manieth of that it is, from 1. What before returns is the body
	// that is passed on; an error answers nothing, with the connection closed.
	before func(r *http.Request, n int, action string, body []byte) ([]byte, error)
	after  func(n int, action string)
}

// guard puts a gate before the world's account.
func (w *world) guard(t *testing.T, g *gate) *gate {
	t.Helper()
	inner := w.account.Handler()
	server := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) { g.pass(inner, rw, r) }))
	t.Cleanup(server.Close)
	w.url = server.URL
	return g
}

func (g *gate) pass(inner http.Handler, w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	action := actionOf(r, body)
	g.mu.Lock()
	if g.count == nil {
		g.count = map[string]int{}
	}
	g.count[action]++
	n := g.count[action]
	g.mu.Unlock()
	if g.before != nil {
		if body, err = g.before(r, n, action, body); err != nil {
			panic(http.ErrAbortHandler)
		}
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	// What the account does is not undone because nobody waits for the answer.
	answer := httptest.NewRecorder()
	inner.ServeHTTP(answer, r.WithContext(context.WithoutCancel(r.Context())))
	if g.after != nil {
		g.after(n, action)
	}
	for key, values := range answer.Header() {
		w.Header()[key] = values
	}
	w.WriteHeader(answer.Code)
	_, _ = w.Write(answer.Body.Bytes()) // the client may be gone
}

// actionOf names a request: the Query protocol says it, the JSON one has a header, and of the EBS direct APIs it is in
// the method and the path.
func actionOf(r *http.Request, body []byte) string {
	if target := r.Header.Get("X-Amz-Target"); target != "" {
		return target[strings.LastIndexByte(target, '.')+1:]
	}
	if form, err := url.ParseQuery(string(body)); err == nil && form.Get("Action") != "" {
		return form.Get("Action")
	}
	switch {
	case r.Method == http.MethodPut:
		return "PutSnapshotBlock"
	case strings.HasPrefix(r.URL.Path, "/snapshots/completion/"):
		return "CompleteSnapshot"
	case r.Method == http.MethodPost:
		return "StartSnapshot"
	case strings.HasSuffix(r.URL.Path, "/blocks"):
		return "ListSnapshotBlocks"
	}
	return "GetSnapshotBlock"
}

var errGone = errors.New("the answer never comes")

// asked counts the requests of an action that came through the gate.
func (g *gate) asked(action string) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.count[action]
}

// slow has snapshots and images take their time, so that there is something to wait for.
func slow() awsfake.Options {
	return awsfake.Options{EBS: awsfake.EBSOptions{Seal: 20 * time.Millisecond, Register: 20 * time.Millisecond}}
}
