// Package command has what the programs on a machine share: how a command line begins and ends, and how the body of a
// unit says on the console that it works or why it fails, once.
//
// Its rule: it imports nothing of AWS or Kubernetes. The program that reads the user data is the first of every boot and
// on its critical path, and pays for each package that is linked into it.
package command

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/hardtack/packer-plugin-hardtack/pkg/node/systemd"
)

// Streams are a command's outputs: Out for results, Err for logs.
type Streams struct {
	Out, Err io.Writer
	// Unit is the unit that the process runs in; empty if a person runs it.
	Unit string
}

// UsageError is a wrong command line. A program ends with status 2 for it, and with 1 for any other error.
type UsageError struct{ Err error }

func (e UsageError) Error() string { return e.Err.Error() }
func (e UsageError) Unwrap() error { return e.Err }

// reportedError is an error that the console has already, so that a unit that systemd restarts does not repeat it.
type reportedError struct{ error }

func (e reportedError) Unwrap() error { return e.error }

// Main runs a program until it ends or is asked to, prints its error, and returns its exit status.
func Main(ctx context.Context, program string, run func(ctx context.Context, args []string, s Streams) error) int {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := run(ctx, os.Args[1:], Streams{os.Stdout, os.Stderr, systemd.Unit()})
	if err == nil {
		return 0
	}
	var reported reportedError
	if !errors.As(err, &reported) {
		fmt.Fprintf(os.Stderr, "%s: %v\n", program, err)
	}
	var usage UsageError
	if errors.As(err, &usage) {
		return 2
	}
	return 1
}

// ParseFlags parses the flags of a command without arguments; done is true if it printed usage, the help.
func ParseFlags(flags *flag.FlagSet, args []string, s Streams, usage string) (done bool, err error) {
	flags.SetOutput(io.Discard) // the error is returned, and the help is usage
	err = flags.Parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		_, err := io.WriteString(s.Out, usage)
		return true, err
	case err != nil:
		return false, UsageError{fmt.Errorf("%s: %w", flags.Name(), err)}
	case flags.NArg() > 0:
		return false, UsageError{fmt.Errorf("%s takes no arguments, and got %q", flags.Name(), flags.Args())}
	}
	return false, nil
}

// Logger logs without times, since the journal and the console add them.
func (s Streams) Logger(verbose bool) *slog.Logger {
	level := slog.LevelInfo
	if verbose {
		level = slog.LevelDebug
	}
	return slog.New(slog.NewTextHandler(s.Err, &slog.HandlerOptions{Level: level, ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
		if len(groups) == 0 && a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}}))
}
