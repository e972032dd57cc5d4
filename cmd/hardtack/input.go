package main

import (
	"cmp"
	"context"
	"io"
	"os"

	"golang.org/x/term"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/file"
)

// interruptible returns what read reads, unless the program is interrupted first. A read of a terminal or a pipe cannot be
// ended from outside: it is left behind, and what it still gets is not used.
func interruptible[T any](ctx context.Context, read func() (T, error)) (T, error) {
	var got, none T
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		got, err = read()
	}()
	select {
	case <-done:
	case <-ctx.Done():
		return none, ctx.Err()
	}
	// Who presses Ctrl-C and Enter has not agreed, whichever is seen first.
	return got, cmp.Or(ctx.Err(), err)
}

// readHidden reads a line from the terminal, which does not show what is typed until then.
func readHidden(ctx context.Context) ([]byte, error) {
	fd := int(os.Stdin.Fd())
	before, err := term.GetState(fd)
	if err != nil {
		return nil, err
	}
	defer func() { _ = term.Restore(fd, before) }() // a read that is left behind does not
	return interruptible(ctx, func() ([]byte, error) { return term.ReadPassword(fd) })
}

// readInput reads a file that the command line names, or with - standard input.
func readInput(ctx context.Context, name string, limit int64) ([]byte, error) {
	if name == "-" {
		return readStdin(ctx, limit)
	}
	return readFile(ctx, name, limit)
}

// readStdin reads standard input until the program is interrupted, and no more of it than a byte above the limit.
func readStdin(ctx context.Context, limit int64) ([]byte, error) {
	return interruptible(ctx, func() ([]byte, error) { return io.ReadAll(io.LimitReader(os.Stdin, limit+1)) })
}

// readFile reads a file of at most limit bytes until the program is interrupted: it may be a pipe.
func readFile(ctx context.Context, name string, limit int64) ([]byte, error) {
	return interruptible(ctx, func() ([]byte, error) { return file.ReadUpTo(name, limit) })
}
