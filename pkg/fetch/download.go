package fetch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// transfer is one download into a file, over as many tries as it takes.
type transfer struct {
	client *client
	url    string
	path   string
	// size is what the lock says; 0 where it says nothing.
	size  int64
	meter Meter
	// resumed is true once bytes of an earlier download have been kept.
	resumed bool
	// fresh makes the next try begin at the first byte.
	fresh bool
}

// validators are what the server said about the version of a file that is here in part.
type validators struct {
	URL          string `json:"url"`
	ETag         string `json:"etag,omitempty"`
	LastModified string `json:"last_modified,omitempty"`
}

func (t *transfer) statePath() string { return t.path + ".json" }

// run downloads the file. At an error what has arrived stays for the next time, unless keeping it was
// what failed or it is not the right file.
func (t *transfer) run(ctx context.Context) error {
	err := t.client.retry(ctx, t.url, func() error { return t.try(ctx) })
	if err != nil && !isTransfer(err) && ctx.Err() == nil {
		t.discard()
	}
	if t.meter != nil {
		t.meter.Done(err)
		t.meter = nil
	}
	return err
}

// discard removes what has arrived.
func (t *transfer) discard() {
	_ = os.Remove(t.path)
	_ = os.Remove(t.statePath())
}

// try asks for the rest of the file and appends what comes.
func (t *transfer) try(ctx context.Context) error {
	have, header := t.resume()
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	resp, err := t.client.do(ctx, t.url, header)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	switch resp.StatusCode {
	case http.StatusOK:
		have = 0
		t.keepState(resp.Header)
	case http.StatusPartialContent:
		if start, ok := rangeStart(resp.Header); !ok || start != have {
			t.fresh = true
			return &cutError{err: fmt.Errorf("asked for bytes from %d, got %q", have, resp.Header.Get("Content-Range"))}
		}
		t.resumed = true
	default:
		err := status(resp)
		if have > 0 && resp.StatusCode == http.StatusRequestedRangeNotSatisfiable {
			// Everything is here already, or the file has become shorter: the first byte is the way out.
			t.fresh = true
			return &cutError{err: errors.New(err.Error())}
		}
		return err
	}
	total := int64(0)
	if resp.ContentLength >= 0 {
		total = have + resp.ContentLength
	}
	if t.size > 0 && total > 0 && total != t.size {
		return t.wrongSize(total)
	}
	t.start(total, have)
	err = t.receive(resp.Body, have, stop)
	var cut *cutError
	if errors.As(err, &cut) && ctx.Err() != nil {
		cut.err = context.Cause(ctx) // the stall timer's reason instead of "context canceled"
	}
	return err
}

// resume returns how much is here and the headers that ask for the rest.
func (t *transfer) resume() (int64, http.Header) {
	info, err := os.Stat(t.path)
	if err != nil || info.Size() == 0 || t.fresh {
		t.fresh = false
		return 0, nil
	}
	data, err := os.ReadFile(t.statePath())
	var v validators
	if err != nil || json.Unmarshal(data, &v) != nil || v.URL != t.url {
		return 0, nil
	}
	header := http.Header{"Range": {fmt.Sprintf("bytes=%d-", info.Size())}}
	// A weak ETag cannot stand in If-Range (RFC 9110, 13.1.5). Without any validator the digest decides.
	if v.ETag != "" && !strings.HasPrefix(v.ETag, "W/") {
		header.Set("If-Range", v.ETag)
	} else if v.LastModified != "" {
		header.Set("If-Range", v.LastModified)
	}
	return info.Size(), header
}

// keepState writes down which version of the file is arriving. Without it the next run starts anew,
// so a failure costs nothing else.
func (t *transfer) keepState(h http.Header) {
	data, err := json.Marshal(validators{URL: t.url, ETag: h.Get("ETag"), LastModified: h.Get("Last-Modified")})
	if err == nil {
		_ = os.WriteFile(t.statePath(), data, 0o644)
	}
}

func rangeStart(h http.Header) (int64, bool) {
	text, ok := strings.CutPrefix(h.Get("Content-Range"), "bytes ")
	if !ok {
		return 0, false
	}
	first, _, _ := strings.Cut(text, "-")
	n, err := strconv.ParseInt(first, 10, 64)
	return n, err == nil
}

func (t *transfer) wrongSize(got int64) error {
	return &rejectedError{url: t.url, what: "size", want: fmt.Sprintf("%d bytes", t.size), got: fmt.Sprintf("%d", got)}
}

// start tells the progress at the first answer how much there is, and at each what is here.
func (t *transfer) start(total, have int64) {
	if t.meter == nil {
		t.meter = t.client.progress.Start(base(t.url), max(total, t.size))
		t.meter.Add(have)
	}
}

// receive appends the body to the file from offset have on. stop ends the request: a body that brings
// nothing for stallTimeout counts as cut.
func (t *transfer) receive(body io.Reader, have int64, stop context.CancelCauseFunc) error {
	f, err := os.OpenFile(t.path, os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("keeping %s: %w", t.url, err)
	}
	before, err := f.Seek(0, io.SeekEnd)
	if err == nil && before != have {
		t.meter.Add(have - before)
		err = f.Truncate(have)
		_, seekErr := f.Seek(have, io.SeekStart)
		err = errors.Join(err, seekErr)
	}
	if err != nil {
		_ = f.Close()
		return fmt.Errorf("keeping %s: %w", t.url, err)
	}
	w := &watched{w: f, meter: t.meter, timer: time.AfterFunc(stallTimeout, func() {
		stop(fmt.Errorf("nothing arrived for %s", stallTimeout))
	})}
	defer w.timer.Stop()
	if t.size > 0 {
		body = io.LimitReader(body, t.size-have+1)
	}
	n, err := io.CopyBuffer(w, body, make([]byte, 128<<10))
	if closeErr := f.Close(); w.err == nil {
		w.err = closeErr
	}
	switch {
	case w.err != nil:
		return keepError(t.url, w.err)
	case err != nil:
		return &cutError{err: err, n: n}
	case t.size > 0 && have+n > t.size:
		return &rejectedError{url: t.url, what: "size", want: fmt.Sprintf("%d bytes", t.size), got: "more"}
	case t.size > 0 && have+n < t.size:
		return t.wrongSize(have + n)
	}
	return nil
}

func keepError(url string, err error) error {
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return fmt.Errorf("keeping %s: %w (make room in the cache, or name another one)", url, err)
	}
	return fmt.Errorf("keeping %s: %w", url, err)
}

// watched is the file's end of a transfer: it moves the meter, puts the stall timer back, and tells an
// error of the file from one of the connection.
type watched struct {
	w     io.Writer
	meter Meter
	timer *time.Timer
	err   error
}

func (w *watched) Write(p []byte) (int, error) {
	w.timer.Reset(stallTimeout)
	n, err := w.w.Write(p)
	w.meter.Add(int64(n))
	w.err = err
	return n, err
}
