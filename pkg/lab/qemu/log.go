package qemu

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"sync"
)

// logLimit is the number of bytes of a serial line that are kept: the oldest are dropped, since the end has the cause.
const logLimit = 8 << 20

// Log is the output of a machine on a serial line. It is safe for concurrent use.
type Log struct {
	mu      sync.Mutex
	buf     []byte
	total   int64
	arrived func()
	// followers receive new output.
	followers []follower
}

// Write appends output; it never fails.
func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	l.buf = append(l.buf, p...)
	if len(l.buf) > logLimit {
		l.buf = append(l.buf[:0], l.buf[len(l.buf)-logLimit/2:]...)
	}
	l.total += int64(len(p))
	for _, f := range l.followers {
		f.arrive(p)
	}
	l.mu.Unlock()
	if l.arrived != nil {
		l.arrived()
	}
	return len(p), nil
}

// follower is called with new output, in order; it must not keep the slice, block, or call the Log.
type follower interface{ arrive(p []byte) }

func (l *Log) join(f follower) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.followers = append(l.followers, f)
}

func (l *Log) leave(f follower) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.followers = slices.DeleteFunc(l.followers, func(other follower) bool { return other == f })
}

// copier copies new output to a writer, until that fails.
type copier struct {
	w   io.Writer
	err error
}

func (c *copier) arrive(p []byte) {
	if c.err == nil {
		_, c.err = c.w.Write(p)
	}
}

// Follow writes all output so far to w and then all new output, in order and completely. The machine waits for w; after
// an error w gets no more.
func (l *Log) Follow(w io.Writer) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, err := w.Write(l.buf); err != nil {
		return fmt.Errorf("copying a serial line: %w", err)
	}
	l.followers = append(l.followers, &copier{w: w})
	return nil
}

// Bytes returns a copy of the output, without the part that was dropped.
func (l *Log) Bytes() []byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	return bytes.Clone(l.buf)
}

// String returns Bytes as a string.
func (l *Log) String() string { return string(l.Bytes()) }

// Contains reports whether the output contains text.
func (l *Log) Contains(text string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return bytes.Contains(l.buf, []byte(text))
}

// Total returns the number of bytes of output since power-on.
func (l *Log) Total() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.total
}

// Tail returns the last n lines.
func (l *Log) Tail(n int) string {
	text := bytes.TrimRight(l.Bytes(), "\r\n")
	end := len(text)
	for ; n > 0 && end >= 0; n-- {
		end = bytes.LastIndexByte(text[:end], '\n')
	}
	return string(text[end+1:])
}
