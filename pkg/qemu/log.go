package qemu

import (
	"bytes"
	"sync"
)

// logLimit is how many bytes of a serial line are kept: the beginning is dropped, the end says why.
const logLimit = 8 << 20

// Log is what a machine printed on a serial line. It is safe for use by several goroutines.
type Log struct {
	mu      sync.Mutex
	buf     []byte
	total   int64
	arrived func()
}

// Write appends what arrived; it never fails.
func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	l.buf = append(l.buf, p...)
	if len(l.buf) > logLimit {
		l.buf = append(l.buf[:0], l.buf[len(l.buf)-logLimit/2:]...)
	}
	l.total += int64(len(p))
	l.mu.Unlock()
	if l.arrived != nil {
		l.arrived()
	}
	return len(p), nil
}

// Bytes returns a copy of what has arrived, without its beginning where that was dropped.
func (l *Log) Bytes() []byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	return bytes.Clone(l.buf)
}

// String is Bytes as text.
func (l *Log) String() string { return string(l.Bytes()) }

// Contains reports whether text has arrived.
func (l *Log) Contains(text string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return bytes.Contains(l.buf, []byte(text))
}

// Total is how many bytes have arrived since power-on.
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
