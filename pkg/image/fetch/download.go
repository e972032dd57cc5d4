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
)

// transfer is one download into a file, with retries.
type transfer struct {
	client *client
	url    string
	path   string
	// size is the lock's size; 0 if it has none.
	size  int64
	meter Meter
	// reached is the number of the file's first bytes that any attempt has had.
	reached int64
	// resumed is true once bytes of an earlier download were reused.
	resumed bool
	// fresh makes the next attempt start at the first byte.
	fresh bool
}

// validators are the response headers that identify the version of a partial file.
type validators struct {
	URL          string `json:"url"`
	ETag         string `json:"etag,omitempty"`
	LastModified string `json:"last_modified,omitempty"`
}

func (t *transfer) statePath() string { return t.path + ".json" }

// run downloads the file. After an error the partial file stays, to be resumed, unless it could not be written or has
// the wrong content.
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

// discard removes the partial file.
func (t *transfer) discard() {
	_ = os.Remove(t.path)
	_ = os.Remove(t.statePath())
}

// try requests the rest of the file and appends it.
func (t *transfer) try(ctx context.Context) error {
	have, header := t.resume()
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
			return lost(fmt.Errorf("asked for bytes from %d, got %q", have, resp.Header.Get("Content-Range")), 0)
		}
		t.resumed = true
	default:
		err := status(resp)
		if have > 0 && resp.StatusCode == http.StatusRequestedRangeNotSatisfiable {
			// The partial file is complete, or the server's file is shorter: start again.
			t.fresh = true
			return lost(err, 0)
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
	return t.receive(resp.Body, have)
}

// resume returns the size of the partial file and the headers that request the rest.
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
	// If-Range must not have a weak ETag (RFC 9110, 13.1.5). Without a validator the digest decides.
	if v.ETag != "" && !strings.HasPrefix(v.ETag, "W/") {
		header.Set("If-Range", v.ETag)
	} else if v.LastModified != "" {
		header.Set("If-Range", v.LastModified)
	}
	return info.Size(), header
}

// keepState records the version of the file that is being downloaded. If that fails, the next run starts from the
// beginning, and nothing else is lost.
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
	return &RejectedError{URL: t.url, What: "size", Want: fmt.Sprintf("%d bytes", t.size), Got: fmt.Sprintf("%d", got)}
}

// start reports the total size at the first response, and at each how much is done.
func (t *transfer) start(total, have int64) {
	if t.meter == nil {
		t.meter = t.client.progress.Start(base(t.url), max(total, t.size))
		t.meter.Add(have)
	}
}

// receive appends the body to the file at offset have.
func (t *transfer) receive(body io.Reader, have int64) error {
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
	w := &watched{w: f, meter: t.meter}
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
		more := have + n - t.reached
		t.reached = max(t.reached, have+n)
		return lost(err, more)
	case t.size > 0 && have+n > t.size:
		return &RejectedError{URL: t.url, What: "size", Want: fmt.Sprintf("%d bytes", t.size), Got: "more"}
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

// watched writes to the file of a transfer: it updates the meter, and separates errors of the file from those of the
// connection.
type watched struct {
	w     io.Writer
	meter Meter
	err   error
}

func (w *watched) Write(p []byte) (int, error) {
	n, err := w.w.Write(p)
	w.meter.Add(int64(n))
	w.err = err
	return n, err
}
