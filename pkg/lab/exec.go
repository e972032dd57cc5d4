package lab

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// ErrShellSilent reports that the shell on a machine's second serial line did not answer.
var ErrShellSilent = errors.New("the shell on the machine's second serial line does not answer: the machine boots, or a program runs in that shell")

const (
	// greetFor is how long a shell may be silent, and greetEvery how often it is asked: what is typed before it has
	// started is lost.
	greetFor, greetEvery = time.Minute, 2 * time.Second
	// freedWithin is how long the daemon may take to notice that the line's last user has gone.
	freedWithin = 5 * time.Second
	// What a terminal takes for the keys Ctrl-C and Ctrl-U.
	interruptKey, discardKey = "\x03", "\x15"
)

// Exec runs a script with bash as root in a machine, by its second serial line, and writes what it prints, both streams in
// one, to out as it comes. It returns the script's exit status. The script has no input. Where ctx ends first, the script
// is interrupted as Ctrl-C does.
//
// Nobody else can have the line at the same time.
func (c *Client) Exec(ctx context.Context, id, script string, out io.Writer) (status int, err error) {
	line, err := c.free(ctx, id)
	if err != nil {
		return 0, err
	}
	defer func() { _ = line.Close() }() // all that is wanted of it has been read
	return execOn(ctx, line, script, out, greetFor)
}

// free opens the line as soon as its last user has let it go.
func (c *Client) free(ctx context.Context, id string) (io.ReadWriteCloser, error) {
	for began := time.Now(); ; {
		line, err := c.Shell(ctx, id)
		if err == nil || !strings.Contains(err.Error(), "is in use") || time.Since(began) > freedWithin {
			return line, err
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// execOn runs a script in the shell on a line, which it closes if ctx ends or the shell is silent for so long.
func execOn(ctx context.Context, line io.ReadWriteCloser, script string, out io.Writer, silence time.Duration) (int, error) {
	r := &markedReader{in: line, nonce: rand.Text()}
	if err := r.greet(ctx, line, silence); err != nil {
		return 0, err
	}
	// The shell waits at its prompt again after an interruption.
	defer context.AfterFunc(ctx, func() {
		_, _ = io.WriteString(line, interruptKey+"stty opost\n")
		_ = line.Close()
	})()
	// The terminal echoes what is typed; the shell computes the markers, so that they are not in the echo.
	err := r.carry(line, base64.StdEncoding.EncodeToString([]byte(script)))
	if err == nil {
		// What the script prints goes through a pipe: for programs that know terminals, this is none. Without opost, its bytes
		// stay as they are.
		_, err = fmt.Fprintf(line, "stty -opost; echo @@$((6*7))begin%[1]s; bash -c \"$(echo $HARDTACK_EXEC | base64 -d)\" </dev/null 2>&1 | cat; echo @@$((6*7))end%[1]s=${PIPESTATUS[0]}; stty opost\n", r.nonce)
	}
	if err == nil {
		err = r.until(io.Discard, "@@42begin"+r.nonce+"\n")
	}
	if err == nil {
		err = r.until(out, "@@42end"+r.nonce+"=")
	}
	var text bytes.Buffer
	if err == nil {
		err = r.until(&text, "\n")
	}
	if cause := ctx.Err(); cause != nil {
		return 0, cause
	}
	if err != nil {
		return 0, fmt.Errorf("running a command by the machine's serial line: %w", err)
	}
	status, err := strconv.Atoi(text.String())
	if err != nil {
		return 0, fmt.Errorf("reading the command's exit status: %w", err)
	}
	return status, nil
}

// markedReader reads a line up to markers that have a number of their own.
type markedReader struct {
	in    io.Reader
	nonce string
	held  []byte // was read, and may be the beginning of a marker
}

// greet waits until the shell answers.
func (r *markedReader) greet(ctx context.Context, line io.ReadWriteCloser, silence time.Duration) error {
	limited, cancel := context.WithTimeout(ctx, silence)
	defer cancel()
	stop := context.AfterFunc(limited, func() { _ = line.Close() })
	answered := make(chan struct{})
	var greeter sync.WaitGroup
	greeter.Go(func() {
		for limited.Err() == nil {
			// What somebody has left half typed goes first. The reader sees what is wrong with the line.
			_, _ = io.WriteString(line, discardKey+"\necho @@$((6*7))here"+r.nonce+"\n")
			select {
			case <-answered:
				return
			case <-limited.Done():
			case <-time.After(greetEvery):
			}
		}
	})
	err := r.until(io.Discard, "@@42here"+r.nonce)
	close(answered)
	greeter.Wait()
	switch {
	case stop():
		if err != nil {
			return fmt.Errorf("asking the shell on the machine's serial line: %w", err)
		}
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	}
	return fmt.Errorf("asking for %s: %w", silence, ErrShellSilent)
}

// carry puts a text into a variable of the shell, a piece at a time: what is typed faster than it is read, a terminal of 4096
// bytes loses (n_tty.c, N_TTY_BUF_SIZE).
func (r *markedReader) carry(line io.Writer, text string) error {
	sofar := ""
	for n, piece := range slices.Collect(slices.Chunk([]byte(text), 1024)) {
		if _, err := fmt.Fprintf(line, "HARDTACK_EXEC=%s%s; echo @@$((6*7))took%s-%d\n", sofar, piece, r.nonce, n); err != nil {
			return err
		}
		if err := r.until(io.Discard, fmt.Sprintf("@@42took%s-%d", r.nonce, n)); err != nil {
			return err
		}
		sofar = "${HARDTACK_EXEC}"
	}
	return nil
}

// until copies what comes before a marker.
func (r *markedReader) until(out io.Writer, marker string) error {
	buf := make([]byte, 4096)
	for {
		before, after, found := bytes.Cut(r.held, []byte(marker))
		if !found { // its beginning may be at the end
			n := min(len(r.held), len(marker)-1)
			for !bytes.HasSuffix(r.held, []byte(marker[:n])) {
				n--
			}
			before, after = r.held[:len(r.held)-n], r.held[len(r.held)-n:]
		}
		if _, err := out.Write(before); err != nil {
			return err
		}
		if r.held = bytes.Clone(after); found {
			return nil
		}
		n, err := r.in.Read(buf)
		if r.held = append(r.held, buf[:n]...); n == 0 && err != nil {
			return err
		}
	}
}
