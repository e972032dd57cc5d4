package fetch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/hardtack/packer-plugin-hardtack/pkg/image/lock"
)

// broken is a body of which n bytes come, and then an error, or nothing until the request is done.
type broken struct {
	io.ReadCloser
	done <-chan struct{}
	n    int
	err  error
}

func (b *broken) Read(p []byte) (int, error) {
	if b.n > 0 {
		n, err := b.ReadCloser.Read(p[:min(len(p), b.n)])
		b.n -= n
		return n, err
	}
	if b.err != nil {
		return 0, b.err
	}
	<-b.done
	return 0, context.Canceled
}

// memory is a registry with an image, and a server with a file, without a network: a synctest's time is theirs.
func memory(t *testing.T, index v1.ImageIndex, file []byte) roundTrip {
	t.Helper()
	images := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	send := roundTrip(func(r *http.Request) (*http.Response, error) {
		w := httptest.NewRecorder()
		if strings.HasSuffix(address, r.URL.Path) {
			_, _ = w.Write(file) // a buffer
		} else {
			asked := r.Clone(r.Context())
			if asked.Body == nil {
				asked.Body = http.NoBody // as a server has it
			}
			images.ServeHTTP(w, asked)
		}
		resp := w.Result()
		resp.Request = r
		if n := int64(w.Body.Len()); n > 0 {
			resp.ContentLength = n
		}
		return resp, nil
	})
	if err := remote.WriteIndex(must(name.ParseReference("registry.example/pause:3.10.1")), index, remote.WithTransport(send)); err != nil {
		t.Fatal(err)
	}
	return send
}

// A layer, or a file, whose connection is reset or sends nothing any more is asked for again, and not for ever.
func TestBrokenOff(t *testing.T) {
	index, data := pauseIndex(t), noise(20<<10)
	for what, c := range map[string]lock.Component{"layer": pause(must(index.Digest()).String()), "file": tool("tool", address, data)} {
		for how, tt := range map[string]struct {
			end  error
			want string
		}{
			"reset":  {&net.OpError{Op: "read", Net: "tcp", Err: syscall.ECONNRESET}, "connection lost: read tcp: connection reset by peer"},
			"silent": {nil, "connection lost: nothing arrived for 1m0s"},
		} {
			for _, often := range []int{1, 100} {
				t.Run(fmt.Sprintf("%s %s %d", what, how, often), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						inner, asked, began := memory(t, index, data), 0, time.Now()
						f := newFetcher(t, Options{Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
							resp, err := inner(r)
							if err == nil && resp.ContentLength > 10<<10 {
								if asked++; asked <= often {
									resp.Body = &broken{resp.Body, r.Context().Done(), 1000, tt.end}
								}
							}
							return resp, err
						})})
						_, err := f.Get(t.Context(), c)
						var missing *UnavailableError
						good := err == nil && asked > 1
						if often > 1 {
							good = errors.As(err, &missing) && strings.Contains(err.Error(), tt.want) && asked <= 1+statusTries
						}
						if took := time.Since(began); !good || took > time.Duration(1+often)*stallTimeout {
							t.Errorf("asked %d times in %s: %v", asked, took, err)
						}
					})
				})
			}
		}
	}
}

// Only what is waited for counts: a reader may take its time, and so may bytes that keep coming.
func TestSteadySlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		from, to := io.Pipe()
		go func() {
			for range 5 {
				time.Sleep(stallTimeout - time.Second)
				_, _ = to.Write([]byte("x"))
			}
			_ = to.Close()
		}()
		s := steady{roundTrip(func(*http.Request) (*http.Response, error) { return &http.Response{Body: from}, nil })}
		resp := must(s.RoundTrip(must(http.NewRequestWithContext(t.Context(), http.MethodGet, address, http.NoBody))))
		time.Sleep(2 * stallTimeout)
		if _, err := resp.Body.Read(make([]byte, 1)); err != nil {
			t.Errorf("read late: %v", err)
		}
		if rest, err := io.ReadAll(resp.Body); err != nil || len(rest) != 4 {
			t.Errorf("read slowly: %q, %v", rest, err)
		}
		_ = resp.Body.Close()
	})
}
