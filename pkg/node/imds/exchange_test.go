package imds

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"
)

const testBody = 64

// byNetHTTP reads an answer with net/http, as its client would: interim answers are passed over.
func byNetHTTP(raw []byte) (status int, body []byte, err error) {
	from := bufio.NewReader(bytes.NewReader(raw))
	request := &http.Request{Method: http.MethodGet}
	var answer *http.Response
	for range maxInterim + 1 {
		if answer, err = http.ReadResponse(from, request); err != nil {
			return 0, nil, err
		}
		if answer.StatusCode/100 != 1 || answer.StatusCode == http.StatusSwitchingProtocols {
			break
		}
	}
	if answer.StatusCode/100 == 1 && answer.StatusCode != http.StatusSwitchingProtocols {
		return 0, nil, errors.New("interim answers only")
	}
	if answer.StatusCode != http.StatusOK {
		return answer.StatusCode, nil, nil
	}
	body, err = io.ReadAll(io.LimitReader(answer.Body, testBody+1))
	return answer.StatusCode, body, err
}

// answers are answers of all forms, good and bad.
var answers = map[string]string{
	"length":                      "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
	"length, more follows":        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello world",
	"length, cut":                 "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhel",
	"length, none":                "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
	"length, twice the same":      "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 5 \r\n\r\nhello",
	"length, two":                 "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
	"length, empty":               "HTTP/1.1 200 OK\r\nContent-Length:\r\n\r\nhello",
	"length, negative":            "HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\nhello",
	"length, signed":              "HTTP/1.1 200 OK\r\nContent-Length: +5\r\n\r\nhello",
	"length, hex":                 "HTTP/1.1 200 OK\r\nContent-Length: 0x5\r\n\r\nhello",
	"length, beyond int64":        "HTTP/1.1 200 OK\r\nContent-Length: 92233720368547758070\r\n\r\nhello",
	"length, over the bound":      "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n" + strings.Repeat("x", 100),
	"until closed":                "HTTP/1.1 200 OK\r\n\r\nhello",
	"until closed, empty":         "HTTP/1.1 200 OK\r\n\r\n",
	"until closed, long":          "HTTP/1.1 200 OK\r\n\r\n" + strings.Repeat("x", 100),
	"chunks":                      "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n6\r\n world\r\n0\r\n\r\n",
	"chunks, capitals":            "HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\nA\r\n0123456789\r\n0\r\n\r\n",
	"chunks, with a length":       "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
	"chunks, extension":           "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5;a=b\r\nhello\r\n0\r\n\r\n",
	"chunks, trailer":             "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nA: b\r\n\r\n",
	"chunks, no last":             "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
	"chunks, no end":              "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n",
	"chunks, cut":                 "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhel",
	"chunks, longer":              "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhello\r\n0\r\n\r\n",
	"chunks, no size":             "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\r\nhello\r\n0\r\n\r\n",
	"chunks, negative":            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-5\r\nhello\r\n0\r\n\r\n",
	"chunks, huge":                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\nhello\r\n0\r\n\r\n",
	"chunks, size too long":       "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n00000000000000005\r\nhello\r\n0\r\n\r\n",
	"chunks, long line":           "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5;" + strings.Repeat("x", 5000) + "\r\nhello\r\n0\r\n\r\n",
	"chunks, over the bound":      "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n64\r\n" + strings.Repeat("x", 100) + "\r\n0\r\n\r\n",
	"chunks, many":                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + strings.Repeat("1\r\nx\r\n", 100) + "0\r\n\r\n",
	"gzip, chunked":               "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
	"identity":                    "HTTP/1.1 200 OK\r\nTransfer-Encoding: identity\r\n\r\nhello",
	"two encodings":               "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
	"1.0":                         "HTTP/1.0 200 OK\r\n\r\nhello",
	"1.0 with chunks":             "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
	"1.0, length and encoding":    "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\nhello",
	"no reason":                   "HTTP/1.1 200\r\nContent-Length: 1\r\n\r\nx",
	"bare newlines":               "HTTP/1.1 200 OK\nContent-Length: 1\n\nx",
	"404":                         "HTTP/1.1 404 Not Found\r\nContent-Length: 9\r\n\r\nnot found",
	"401, cut body":               "HTTP/1.1 401 Unauthorized\r\nContent-Length: 9\r\n\r\n",
	"302":                         "HTTP/1.1 302 Found\r\nLocation: http://192.0.2.1/\r\n\r\n",
	"204":                         "HTTP/1.1 204 No Content\r\n\r\n",
	"interim":                     "HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx",
	"interim only":                "HTTP/1.1 100 Continue\r\n\r\n",
	"interim without end":         strings.Repeat("HTTP/1.1 100 Continue\r\n\r\n", 10) + "HTTP/1.1 200 OK\r\n\r\n",
	"101":                         "HTTP/1.1 101 Switching Protocols\r\n\r\nHTTP/1.1 200 OK\r\n\r\n",
	"empty":                       "",
	"no header end":               "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n",
	"no colon":                    "HTTP/1.1 200 OK\r\nContent-Length 1\r\n\r\nx",
	"no HTTP":                     "SSH-2.0-OpenSSH_9.2\r\n\r\n",
	"no number":                   "HTTP/1.1 twohundred\r\n\r\n",
	"short number":                "HTTP/1.1 20\r\n\r\n",
	"signed number":               "HTTP/1.1 +20 OK\r\n\r\n",
	"a long version":              "HTTP/1.10 200 OK\r\n\r\n",
	"2.0":                         "HTTP/2.0 200 OK\r\nContent-Length: 1\r\n\r\nx",
	"folded":                      "HTTP/1.1 200 OK\r\nA: b\r\n c\r\nContent-Length: 1\r\n\r\nx",
	"length, none, more follows":  "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\nhello",
	"length, over the bound, cut": "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n" + strings.Repeat("x", 64),
	"length, beyond int64, long":  "HTTP/1.1 200 OK\r\nContent-Length: 92233720368547758070\r\n\r\n" + strings.Repeat("x", 100),
	"chunks, two over the bound":  "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3c\r\n" + strings.Repeat("x", 60) + "\r\n3c\r\n" + strings.Repeat("x", 60) + "\r\n0\r\n\r\n",
	"chunks, no line end":         "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhelloXX0\r\n\r\n",
	"chunks, blanks after a size": "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5 \t\r\nhello\r\n0\r\n\r\n",
	"chunks, the longest line":    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5;" + strings.Repeat("x", 4091) + "\r\nhello\r\n0\r\n\r\n",
	"chunks, a longer line":       "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5;" + strings.Repeat("x", 4092) + "\r\nhello\r\n0\r\n\r\n",
	"chunks, bare newline":        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5;a\nhello\r\n0\r\n\r\n",
	"chunks, bare newline, end":   "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5;a\n\r\n",
	"chunks, return in a line":    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5;a\rb\r\nhello\r\n0\r\n\r\n",
	"chunks, no number":           "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n\r\n",
	"chunks, size of 16 digits":   "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0000000000000005\r\nhello\r\n0\r\n\r\n",
	"chunks, bad trailer":         "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nA b\r\n\r\n",
	"no name":                     "1.1 200 OK\r\n\r\n",
	"no dot":                      "HTTP/1x1 200 OK\r\n\r\n",
	"no version":                  "HTTP/x.1 200 OK\r\n\r\n",
	"letters":                     "HTTP/1.1 abc\r\n\r\n",
	"negative number":             "HTTP/1.1 -20 OK\r\n\r\n",
	"zero":                        "HTTP/1.1 000 OK\r\n\r\n",
	"spaces":                      "HTTP/1.1  200  OK\r\nContent-Length: 1\r\n\r\nx",
}

// TestAnswersAsNetHTTP reads answers of all forms as net/http reads them.
func TestAnswersAsNetHTTP(t *testing.T) {
	for name, raw := range answers {
		if difference := compare([]byte(raw)); difference != "" {
			t.Errorf("%s: %s", name, difference)
		}
	}
}

// compare says how an answer is read otherwise than by net/http; "" is not at all.
func compare(raw []byte) string {
	status, body, err := readAnswer(bytes.NewReader(raw), testBody)
	wantStatus, wantBody, wantErr := byNetHTTP(raw)
	if (err == nil) != (wantErr == nil) || err == nil && (status != wantStatus || !bytes.Equal(body, wantBody)) {
		return fmt.Sprintf("%d %q %v, net/http reads %d %q %v", status, body, err, wantStatus, wantBody, wantErr)
	}
	return ""
}

// FuzzAnswer looks for bytes that are read otherwise than by net/http.
func FuzzAnswer(f *testing.F) {
	for _, raw := range answers {
		f.Add([]byte(raw))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		if difference := compare(raw); difference != "" {
			t.Errorf("%q: %s", raw, difference)
		}
	})
}

// endless is an answer that has no end.
type endless struct{ begin, again string }

func (e *endless) Read(p []byte) (int, error) {
	if e.begin != "" {
		n := copy(p, e.begin)
		e.begin = e.begin[n:]
		return n, nil
	}
	return copy(p, e.again), nil
}

// TestEndlessAnswers ends with an error, or with one byte over the bound, what would not end.
func TestEndlessAnswers(t *testing.T) {
	for name, tt := range map[string]struct {
		answer endless
		want   string
	}{
		"a line":    {endless{"", "x"}, "header is over the bound"},
		"fields":    {endless{"HTTP/1.1 200 OK\r\n", "A: b\r\n"}, "header is over the bound"},
		"interim":   {endless{"", "HTTP/1.1 100 Continue\r\n\r\n"}, "interim answers"},
		"a body":    {endless{"HTTP/1.1 200 OK\r\n\r\n", "x"}, ""},
		"chunks":    {endless{"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", "1\r\nx\r\n"}, ""},
		"extension": {endless{"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;", "x"}, "line before a chunk"},
		"trailer":   {endless{"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n", "A: b\r\n"}, "trailer"},
	} {
		_, body, err := readAnswer(&tt.answer, testBody)
		if tt.want == "" && (err != nil || len(body) != testBody+1) || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%s: %d bytes, %v; want %q", name, len(body), err, tt.want)
		}
	}
}

// TestBroken gives up a body that a connection breaks off, whatever frames it.
func TestBroken(t *testing.T) {
	reset := errors.New("connection reset by peer")
	for _, begin := range []string{
		"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhel", "HTTP/1.1 200 OK\r\n\r\nhel",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhel", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n", "HTTP/1.1 200",
	} {
		if _, body, err := readAnswer(io.MultiReader(strings.NewReader(begin), iotest.ErrReader(reset)), testBody); !errors.Is(err, reset) {
			t.Errorf("%q: %q, %v", begin, body, err)
		}
	}
}
