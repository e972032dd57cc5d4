package imds

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/textproto"
	"strconv"
	"strings"
	"time"
)

// One request and its answer over a connection of its own, as HTTP 1.1 has it (RFC 9112), without net/http: that is 3 of
// the 8 MB of the program that every boot waits for (TLS, HTTP 2 and proxies come with it), and of the code that it runs
// a seventh. The metadata service speaks plain HTTP to a fixed address, asks for no cookies, and must be reached without
// redirects and proxies. TestAnswersAsNetHTTP and FuzzAnswer hold this file to what net/http makes of the same bytes.

// Bounds of an answer, in bytes, besides Options.MaxBody.
const (
	// maxHeader bounds the status line and the header.
	maxHeader = 64 << 10
	// maxChunkLine bounds the line before a chunk, and what may follow the last chunk.
	maxChunkLine = 4096
	// maxInterim is how many interim answers (1xx) may come before the answer.
	maxInterim = 5
)

var errHeaderBound = fmt.Errorf("the answer's header is over the bound of %d bytes", maxHeader)

// exchange sends a request with one header field and returns the answer's status, and its body if the status is 200.
func (c *Client) exchange(ctx context.Context, method, target, field, value string) (status int, body []byte, err error) {
	if strings.ContainsFunc(value, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }) {
		return 0, nil, fmt.Errorf("the value of %s holds a control character", field)
	}
	conn, err := c.options.Dial(ctx, "tcp", c.address)
	if err != nil {
		return 0, nil, err
	}
	defer func() { _ = conn.Close() }() // what was read is complete, or given up
	// An end of ctx ends what waits for the connection.
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })()
	request := method + " " + target + " HTTP/1.1\r\nHost: " + c.host + "\r\nUser-Agent: hardtack\r\n" + field + ": " + value + "\r\nConnection: close\r\n"
	if method != methodGet {
		request += "Content-Length: 0\r\n"
	}
	_, err = io.WriteString(conn, request+"\r\n")
	if err == nil {
		status, body, err = readAnswer(conn, c.options.MaxBody)
	}
	if err != nil && ctx.Err() != nil {
		err = ctx.Err() // the error is that of the deadline that was set for it
	}
	return status, body, err
}

// readAnswer reads an answer up to one byte more than maxBody, which the caller refuses.
func readAnswer(from io.Reader, maxBody int64) (status int, body []byte, err error) {
	bounded := &io.LimitedReader{R: from, N: maxHeader}
	buffered := bufio.NewReaderSize(bounded, maxChunkLine)
	status, newer, header, err := readHead(buffered)
	if err != nil && bounded.N <= 0 {
		err = errHeaderBound
	}
	if err != nil {
		return 0, nil, err
	}
	chunked, length, err := framing(header, newer)
	if err != nil || status != statusOK {
		return status, nil, err
	}
	bounded.N = 1<<63 - 1 // bodies have bounds of their own
	switch {
	case chunked:
		body, err = readChunks(buffered, maxBody)
	case length >= 0:
		body, err = io.ReadAll(io.LimitReader(buffered, min(length, maxBody+1)))
		if err == nil && int64(len(body)) < min(length, maxBody+1) {
			err = io.ErrUnexpectedEOF
		}
	default:
		body, err = io.ReadAll(io.LimitReader(buffered, maxBody+1)) // until the server closes the connection
	}
	if err != nil {
		return 0, nil, fmt.Errorf("reading the answer: %w", err) // half a body is an unexpected EOF
	}
	return status, body, nil
}

// readHead reads the status line and the header of the first answer that is no interim one. newer is for HTTP 1.1, where
// an older one has no chunks.
func readHead(from *bufio.Reader) (status int, newer bool, header textproto.MIMEHeader, err error) {
	text := textproto.NewReader(from)
	for range maxInterim + 1 {
		line, err := text.ReadLine()
		if err == nil {
			status, newer, err = parseStatus(line)
		}
		if err == nil {
			header, err = text.ReadMIMEHeader()
		}
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return 0, false, nil, err
		}
		if status/100 != 1 || status == statusSwitching {
			return status, newer, header, nil
		}
	}
	return 0, false, nil, fmt.Errorf("more than %d interim answers", maxInterim)
}

// parseStatus parses "HTTP/1.1 200 OK", of which the last word may be missing.
func parseStatus(line string) (status int, newer bool, err error) {
	protocol, rest, _ := strings.Cut(line, " ")
	code, _, _ := strings.Cut(strings.TrimLeft(rest, " "), " ")
	version, isHTTP := strings.CutPrefix(protocol, "HTTP/")
	if isHTTP && len(version) == 3 && version[1] == '.' && isDigits(version[:1]+version[2:]) && len(code) == 3 {
		if status, err = strconv.Atoi(code); err == nil && status >= 0 {
			return status, version >= "1.1", nil
		}
	}
	return 0, false, fmt.Errorf("what answers there does not speak HTTP: %.40q", line)
}

// framing says how the body ends: with its last chunk, after length bytes, or, where length is negative, with the connection.
func framing(header textproto.MIMEHeader, newer bool) (chunked bool, length int64, err error) {
	if encodings := header["Transfer-Encoding"]; len(encodings) > 0 && newer {
		if len(encodings) > 1 || !strings.EqualFold(encodings[0], "chunked") {
			return false, 0, fmt.Errorf("the answer has the transfer encoding %.80q, which is not supported", encodings)
		}
		return true, -1, nil
	}
	lengths := header["Content-Length"]
	if len(lengths) == 0 {
		return false, -1, nil
	}
	first := textproto.TrimString(lengths[0])
	for _, other := range lengths[1:] {
		if textproto.TrimString(other) != first {
			return false, 0, fmt.Errorf("the answer has several lengths: %.80q", lengths)
		}
	}
	if isDigits(first) {
		if length, err = strconv.ParseInt(first, 10, 64); err == nil {
			return false, length, nil
		}
	}
	return false, 0, fmt.Errorf("the answer has the length %.40q", first)
}

// readChunks reads a body in chunks, and what follows the last one.
func readChunks(from *bufio.Reader, maxBody int64) (body []byte, err error) {
	for {
		size, err := readChunkSize(from)
		if err != nil {
			return nil, err
		}
		if size == 0 {
			return body, readTrailer(from)
		}
		part, err := io.ReadAll(io.LimitReader(from, min(size, maxBody+1-int64(len(body)))))
		body = append(body, part...)
		if err != nil || int64(len(body)) > maxBody {
			return body, err // the caller refuses what is over the bound
		}
		if int64(len(part)) < size {
			return nil, io.ErrUnexpectedEOF
		}
		var end [2]byte
		if _, err := io.ReadFull(from, end[:]); err != nil {
			return nil, unexpected(err)
		}
		if string(end[:]) != "\r\n" {
			return nil, errors.New("a chunk is longer than it says")
		}
	}
}

// readChunkSize reads the line before a chunk: its size in hex, and extensions that say nothing here.
func readChunkSize(from *bufio.Reader) (int64, error) {
	line, err := from.ReadSlice('\n')
	if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
		return 0, unexpected(err)
	}
	if err != nil {
		return 0, fmt.Errorf("the line before a chunk is over the bound of %d bytes", maxChunkLine)
	}
	text, ends := strings.CutSuffix(string(line), "\r\n")
	if !ends || strings.Contains(text, "\r") {
		return 0, fmt.Errorf("the line before a chunk does not end as a line does: %.40q", line)
	}
	hex, _, _ := strings.Cut(text, ";")
	hex = strings.TrimRight(hex, "\t ")
	size, err := strconv.ParseUint(hex, 16, 63)
	if err != nil || len(hex) > 16 || strings.ContainsAny(hex, "+-_xX") {
		return 0, fmt.Errorf("a chunk of the size %.40q", hex)
	}
	return int64(size), nil
}

// readTrailer reads what follows the last chunk: an empty line, with fields before it that say nothing here.
func readTrailer(from *bufio.Reader) error {
	var trailer []byte
	for !bytes.Equal(trailer, []byte("\r\n")) && !bytes.HasSuffix(trailer, []byte("\r\n\r\n")) {
		line, err := from.ReadSlice('\n')
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return unexpected(err)
		}
		if trailer = append(trailer, line...); len(trailer) > maxChunkLine {
			return fmt.Errorf("the answer's trailer is over the bound of %d bytes", maxChunkLine)
		}
	}
	_, err := textproto.NewReader(bufio.NewReader(bytes.NewReader(trailer))).ReadMIMEHeader()
	return err
}

// unexpected is the error of an answer that ends too early.
func unexpected(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

func isDigits(text string) bool {
	return text != "" && strings.Trim(text, "0123456789") == ""
}
