package qemu

import (
	"errors"
	"io"
	"net"
	"sync"
)

// line is the input of the second serial line, for one user at a time.
type line struct {
	mu   sync.Mutex
	conn net.Conn // nil before QEMU has connected
	busy bool
}

func (l *line) connected(conn net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.conn = conn
}

// Shell opens the second serial line for a dialogue: reads return new output, writes are input. Only one user at a time
// can have it, until Close. Reads end with io.EOF when the machine has ended.
func (m *Machine) Shell() (io.ReadWriteCloser, error) {
	m.typing.mu.Lock()
	defer m.typing.mu.Unlock()
	if m.typing.busy {
		return nil, errors.New("the machine's second serial line is in use by somebody else")
	}
	m.typing.busy = true
	s := &shell{machine: m, news: make(chan struct{}, 1), closed: make(chan struct{})}
	m.channel.join(s)
	return s, nil
}

// shell is one dialogue. Output is buffered, so that a slow reader does not block the machine.
type shell struct {
	machine *Machine
	news    chan struct{}
	once    sync.Once
	closed  chan struct{}

	mu  sync.Mutex
	buf []byte
}

// arrive makes the shell a follower of the line.
func (s *shell) arrive(p []byte) {
	s.mu.Lock()
	s.buf = append(s.buf, p...)
	if len(s.buf) > logLimit {
		s.buf = append(s.buf[:0], s.buf[len(s.buf)-logLimit/2:]...)
	}
	s.mu.Unlock()
	select {
	case s.news <- struct{}{}:
	default:
	}
}

func (s *shell) Read(p []byte) (int, error) {
	for {
		s.mu.Lock()
		n := copy(p, s.buf)
		s.buf = s.buf[n:]
		s.mu.Unlock()
		if n > 0 || len(p) == 0 {
			return n, nil
		}
		select {
		case <-s.news:
		case <-s.closed:
			return 0, net.ErrClosed
		case <-s.machine.ended:
			return 0, io.EOF
		}
	}
}

func (s *shell) Write(p []byte) (int, error) {
	s.machine.typing.mu.Lock()
	conn := s.machine.typing.conn
	s.machine.typing.mu.Unlock()
	if conn == nil {
		return 0, errors.New("the machine does not listen yet")
	}
	select {
	case <-s.closed:
		return 0, net.ErrClosed
	default:
		return conn.Write(p)
	}
}

func (s *shell) Close() error {
	s.once.Do(func() {
		close(s.closed)
		s.machine.channel.leave(s)
		s.machine.typing.mu.Lock()
		defer s.machine.typing.mu.Unlock()
		s.machine.typing.busy = false
	})
	return nil
}
