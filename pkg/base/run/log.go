package run

import (
	"bytes"
	"sync"
)

// Log is what a running command has written so far, for who reads it meanwhile. The zero value is empty; it is safe for
// concurrent use.
type Log struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write appends; it never fails.
func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

// String returns all that was written.
func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}
