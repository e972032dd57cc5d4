package fetch

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/image/lock"
)

// tally is a Progress that adds up.
type tally struct {
	mu    sync.Mutex
	lines map[string]string
	sum   map[string]int64
}

type tallyMeter struct {
	t    *tally
	what string
}

func (t *tally) Start(what string, total int64) Meter {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.lines == nil {
		t.lines, t.sum = map[string]string{}, map[string]int64{}
	}
	t.lines[what] += fmt.Sprintf("start %d,", total)
	return tallyMeter{t, what}
}

func (m tallyMeter) Add(n int64) {
	m.t.mu.Lock()
	defer m.t.mu.Unlock()
	m.t.sum[m.what] += n
}

func (m tallyMeter) Done(err error) {
	m.t.mu.Lock()
	defer m.t.mu.Unlock()
	m.t.lines[m.what] += fmt.Sprintf("done %v", err)
}

// cutCase is a server that cuts the connection, and the Range headers that it must see.
type cutCase struct {
	fault func(w http.ResponseWriter, r *http.Request, n int) bool
	want  []string
}

// cuts are the ways in which a server of data can be cut off and answer the request for the rest.
func cuts(data []byte) map[string]cutCase {
	return map[string]cutCase{
		"range": {func(w http.ResponseWriter, r *http.Request, n int) bool {
			if n == 1 {
				cut(w, data, 600<<10)
			}
			if r.Header.Get("If-Range") != etag(data) {
				http.Error(w, "no If-Range", http.StatusBadRequest)
				return true
			}
			return false
		}, []string{"all", "bytes=614400-"}},
		"server without ranges": {func(w http.ResponseWriter, _ *http.Request, n int) bool {
			if n == 1 {
				cut(w, data, 600<<10)
			}
			_, _ = w.Write(data)
			return true
		}, []string{"all", "bytes=614400-"}},
		"wrong range": {func(w http.ResponseWriter, r *http.Request, n int) bool {
			switch n {
			case 1:
				cut(w, data, 600<<10)
			case 2:
				w.Header().Set("Content-Range", "bytes 5-9/1048576")
				w.WriteHeader(http.StatusPartialContent)
				_, _ = w.Write(data[5:10])
				return true
			}
			return false
		}, []string{"all", "bytes=614400-", "all"}},
		"range refused": {func(w http.ResponseWriter, r *http.Request, n int) bool {
			switch n {
			case 1:
				cut(w, data, 600<<10)
			case 2:
				w.WriteHeader(http.StatusRequestedRangeNotSatisfiable)
				return true
			}
			return false
		}, []string{"all", "bytes=614400-", "all"}},
		"more cuts than tries": {func(w http.ResponseWriter, r *http.Request, n int) bool {
			if n <= 9 {
				var start int
				_, _ = fmt.Sscanf(r.Header.Get("Range"), "bytes=%d-", &start)
				w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", start, len(data)-1, len(data)))
				w.Header().Set("Content-Length", fmt.Sprint(len(data)-start))
				w.Header().Set("ETag", etag(data))
				if n > 1 {
					w.WriteHeader(http.StatusPartialContent)
				}
				_, _ = w.Write(data[start : start+10000])
				w.(http.Flusher).Flush()
				panic(http.ErrAbortHandler)
			}
			return false
		}, []string{"all", "bytes=10000-", "bytes=20000-", "bytes=30000-", "bytes=40000-", "bytes=50000-", "bytes=60000-", "bytes=70000-", "bytes=80000-", "bytes=90000-"}},
	}
}

func TestResumeAfterCut(t *testing.T) {
	data := noise(1 << 20)
	for name, test := range cuts(data) {
		t.Run(name, func(t *testing.T) {
			u := newUpstream(t)
			u.fault = test.fault
			p := &tally{}
			f := newFetcher(t, Options{Mirror: u.URL, Progress: p})
			r, err := f.Get(t.Context(), tool("tool", u.put(address, data), data))
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(content(t, r, "/usr/bin/tool"), data) {
				t.Error("the content is not upstream's")
			}
			if got := u.seen(); !slices.Equal(got, test.want) {
				t.Errorf("asked for %v, want %v", got, test.want)
			}
			if p.lines["tool"] != "start 1048576,done <nil>" || p.sum["tool"] != 1<<20 {
				t.Errorf("progress was %v %v", p.lines, p.sum)
			}
		})
	}
}

// A server without ranges that always breaks off at the same byte sends bytes each time, and never more of the file.
func TestCutForGood(t *testing.T) {
	data := noise(1 << 20)
	u := newUpstream(t)
	u.fault = func(w http.ResponseWriter, _ *http.Request, n int) bool {
		if n <= 2*statusTries {
			cut(w, data, 600<<10)
		}
		return false
	}
	_, err := newFetcher(t, Options{Mirror: u.URL}).Get(t.Context(), tool("tool", u.put(address, data), data))
	var missing *UnavailableError
	if asked := len(u.seen()); !errors.As(err, &missing) || asked != 1+statusTries {
		t.Errorf("after %d requests: %v", asked, err)
	}
}

// A cancelled download keeps what it has; the next run goes on from there, unless the file has become
// another one in the meantime.
func TestCancelAndGoOn(t *testing.T) {
	old, data := noise(900<<10), noise(1<<20)
	for name, first := range map[string][]byte{"same file": data, "another file": append([]byte("x"), old...)} {
		t.Run(name, func(t *testing.T) {
			u := newUpstream(t)
			ctx, cancel := context.WithCancelCause(t.Context())
			stop := errors.New("ctrl-c")
			u.fault = func(w http.ResponseWriter, r *http.Request, n int) bool {
				if n > 1 {
					return false
				}
				w.Header().Set("ETag", etag(first))
				w.Header().Set("Content-Length", fmt.Sprint(len(data)))
				_, _ = w.Write(first[:400<<10])
				w.(http.Flusher).Flush()
				time.Sleep(50 * time.Millisecond)
				cancel(stop)
				<-r.Context().Done()
				return true
			}
			c := tool("tool", u.put(address, data), data)
			f := newFetcher(t, Options{Mirror: u.URL})
			if _, err := f.Get(ctx, c); !errors.Is(err, stop) {
				t.Fatalf("cancelled: %v", err)
			}
			for _, file := range listing(t, f.cache.Dir) {
				if !strings.HasPrefix(file, "partial/") {
					t.Errorf("half a download is at %s", file)
				}
			}
			r, err := newFetcher(t, Options{Mirror: u.URL, Cache: f.cache.Dir}).Get(t.Context(), c)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(content(t, r, "/usr/bin/tool"), data) {
				t.Error("the content is not upstream's")
			}
			if got := u.seen(); !slices.Equal(got, []string{"all", "bytes=409600-"}) {
				t.Errorf("asked for %v", got)
			}
			if left := listing(t, f.cache.Dir); len(left) != 2 {
				t.Errorf("the cache holds %v, want the blob and its index", left)
			}
		})
	}
}

// A part that does not belong to the file cannot spoil it when the server gives no validator.
func TestResumeWithoutValidatorIsCheckedByDigest(t *testing.T) {
	u := newUpstream(t)
	data := noise(1 << 20)
	u.fault = func(w http.ResponseWriter, r *http.Request, n int) bool {
		if n == 1 {
			w.Header().Set("Content-Length", fmt.Sprint(len(data)))
			_, _ = w.Write(make([]byte, 1000))
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		}
		return false
	}
	r, err := newFetcher(t, Options{Mirror: u.URL}).Get(t.Context(), tool("tool", u.put(address, data), data))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(content(t, r, "/usr/bin/tool"), data) {
		t.Error("the content is not upstream's")
	}
	if got := u.seen(); !slices.Equal(got, []string{"all", "bytes=1000-", "all"}) {
		t.Errorf("asked for %v", got)
	}
}

func TestStatus(t *testing.T) {
	data := noise(100)
	for name, test := range map[string]struct {
		status int
		times  int // how often the status is answered
		asked  int // how often we ask
		err    string
	}{
		"503 then ok":   {503, 2, 3, ""},
		"408 then ok":   {408, 1, 2, ""},
		"429 then ok":   {429, 1, 2, ""},
		"503 for good":  {503, 100, statusTries, "503 Service Unavailable"},
		"404 for good":  {404, 100, 1, "404 Not Found"},
		"403 for good":  {403, 100, 1, "403 Forbidden"},
		"416 for good":  {416, 100, 1, "416 Requested Range Not Satisfiable"},
		"no content":    {204, 100, 1, "204 No Content"},
		"not a release": {300, 100, 1, "300 Multiple Choices"},
	} {
		t.Run(name, func(t *testing.T) {
			u := newUpstream(t)
			u.fault = func(w http.ResponseWriter, _ *http.Request, n int) bool {
				if n <= test.times {
					w.WriteHeader(test.status)
				}
				return n <= test.times
			}
			f := newFetcher(t, Options{Mirror: u.URL})
			_, err := f.Get(t.Context(), tool("tool", u.put(address, data), data))
			if (err == nil) != (test.err == "") || err != nil && !strings.Contains(err.Error(), address+": "+test.err) {
				t.Errorf("error is %v, want %q", err, test.err)
			}
			if got := len(u.seen()); got != test.asked {
				t.Errorf("asked %d times, want %d", got, test.asked)
			}
			if left := listing(t, f.cache.Dir); err != nil && len(left) > 0 {
				t.Errorf("left behind: %v", left)
			}
		})
	}
}

func TestRetryAfterIsHonoured(t *testing.T) {
	data := noise(100)
	for name, value := range map[string]string{"seconds": "1", "date": time.Now().Add(2 * time.Second).UTC().Format(http.TimeFormat)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			u := newUpstream(t)
			var first, second time.Time
			u.fault = func(w http.ResponseWriter, _ *http.Request, n int) bool {
				if n > 1 {
					second = time.Now()
					return false
				}
				first = time.Now()
				w.Header().Set("Retry-After", value)
				w.WriteHeader(http.StatusServiceUnavailable)
				return true
			}
			if _, err := newFetcher(t, Options{Mirror: u.URL}).Get(t.Context(), tool("tool", u.put(address, data), data)); err != nil {
				t.Fatal(err)
			}
			if waited := second.Sub(first); waited < 900*time.Millisecond || waited > 4*time.Second {
				t.Errorf("asked again after %s", waited)
			}
		})
	}
	t.Run("too long", func(t *testing.T) {
		u := newUpstream(t)
		u.fault = func(w http.ResponseWriter, _ *http.Request, _ int) bool {
			w.Header().Set("Retry-After", "3600")
			w.WriteHeader(http.StatusServiceUnavailable)
			return true
		}
		if _, err := newFetcher(t, Options{Mirror: u.URL}).Get(t.Context(), tool("tool", address, data)); err == nil || len(u.seen()) != 1 {
			t.Errorf("error %v after %d requests", err, len(u.seen()))
		}
	})
}

// roundTrip is a transport that is a function.
type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// A host that cannot be reached costs its tries once, not once per component.
func TestUnreachableHostFailsFast(t *testing.T) {
	for name, test := range map[string]struct {
		err   error
		tries int
	}{
		"refused":      {&net.OpError{Op: "dial", Err: errors.New("connection refused")}, connectTries},
		"no such host": {&net.DNSError{Err: "no such host", Name: "up.example", IsNotFound: true}, 1},
		"proxy":        {&proxyError{"proxy.example:3128", "403 Forbidden"}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			tries := map[string]int{}
			f := newFetcher(t, Options{Source: Auto, Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
				tries[r.URL.Host]++
				return nil, test.err
			})})
			m := &fakeMaker{}
			f.builder = m
			for _, name := range []string{"one", "two", "three"} {
				c := tool(name, "https://up.example/"+name, nil)
				c.Modules = &lock.Modules{Module: "example.com/" + name}
				r, err := f.Get(t.Context(), c)
				if err != nil {
					t.Fatal(err)
				}
				if r.Source != Modules || r.Origin != "example.com/"+name || !strings.Contains(r.Fallback, test.err.Error()) || strings.Contains(r.Fallback, "\n") {
					t.Errorf("%s came from %s (%s): %q", name, r.Source, r.Origin, r.Fallback)
				}
			}
			if tries["up.example"] != test.tries {
				t.Errorf("tried %d times in all, want %d", tries["up.example"], test.tries)
			}
			if !slices.Equal(m.built, []string{"one", "two", "three"}) {
				t.Errorf("built %v", m.built)
			}
		})
	}
}

func TestSources(t *testing.T) {
	data := noise(10)
	u := newUpstream(t)
	u.put(address, data)
	here, gone := tool("here", address, data), tool("gone", "https://up.example/gone", data)
	unreleased := tool("unreleased", "", data)
	unreleased.Release = nil
	modules := func(c lock.Component) lock.Component {
		c.Modules = &lock.Modules{Module: "example.com/" + c.Name}
		return c
	}
	for name, test := range map[string]struct {
		source   Source
		c        lock.Component
		from     Source
		fallback string
		err      string
	}{
		"release":                  {Release, modules(here), Release, "", ""},
		"release, 404":             {Release, modules(gone), "", "", "404 Not Found"},
		"release, none":            {Release, modules(unreleased), "", "", "the lock has no amd64 release of it (the source auto builds it from modules)"},
		"modules":                  {Modules, modules(here), Modules, "", ""},
		"modules, none":            {Modules, here, "", "", "the lock has no modules for it (use the source release)"},
		"auto":                     {Auto, modules(here), Release, "", ""},
		"auto, 404":                {Auto, modules(gone), Modules, "https://up.example/gone: 404 Not Found", ""},
		"auto, no release":         {Auto, modules(unreleased), Modules, "release: the lock has no amd64 release of it", ""},
		"auto, 404 and no modules": {Auto, gone, "", "", "the lock has no modules for it to be built from"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFetcher(t, Options{Mirror: u.URL, Source: test.source})
			f.builder = &fakeMaker{}
			r, err := f.Get(t.Context(), test.c)
			if (err == nil) != (test.err == "") || err != nil && !strings.Contains(err.Error(), test.err) {
				t.Fatalf("error is %v, want %q", err, test.err)
			}
			if r.Source != test.from || r.Fallback != test.fallback {
				t.Errorf("came from %q (%q), want %q (%q)", r.Source, r.Fallback, test.from, test.fallback)
			}
		})
	}
}
