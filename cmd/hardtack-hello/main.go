// Command hardtack-hello is the program of the one container image that every Hardtack image carries beside pause:
// small enough to be always there, and able to try what a cluster is for. It serves, fetches, resolves, judges
// admissions and is an aggregated API, so that nothing has to be pulled to see that these work.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

const usage = `hardtack-hello tries what a cluster is for.

usage:
  hello serve [--listen :8080]
      answer every HTTP request with the pod's and the node's name (POD_NAME, NODE_NAME)
  hello fetch [--timeout 10s] URL...
      print what each URL answers; exit 1 unless all answer 200
  hello resolve [--timeout 10s] NAME...
      print each name's addresses; exit 1 unless all have one
  hello webhook --cert FILE --key FILE [--listen :8443]
      validating admission: refuse objects with the label hello.hardtack.dev/refuse
  hello apiservice --cert FILE --key FILE --client-ca FILE [--listen :8443]
      the aggregated API hello.hardtack.dev/v1, for who shows a certificate of that CA
`

// streams are where a verb writes: the answer to out, the story to err.
type streams struct{ out, err io.Writer }

// usageError is a command line that was not understood.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := dispatch(ctx, os.Args[1:], streams{os.Stdout, os.Stderr})
	stop()
	if err == nil {
		return
	}
	fmt.Fprintf(os.Stderr, "hello: %v\n", err)
	var usage usageError
	if errors.As(err, &usage) {
		os.Exit(2)
	}
	os.Exit(1)
}

func dispatch(ctx context.Context, args []string, s streams) error {
	if len(args) == 0 {
		return usageError{errors.New("no command: hello help lists them")}
	}
	switch verb, rest := args[0], args[1:]; verb {
	case "serve":
		return serve(ctx, rest, s)
	case "fetch":
		return fetch(ctx, rest, s)
	case "resolve":
		return resolve(ctx, rest, s)
	case "webhook":
		return webhook(ctx, rest, s)
	case "apiservice":
		return apiservice(ctx, rest, s)
	case "help", "--help", "-h":
		_, err := io.WriteString(s.out, usage)
		return err
	default:
		return usageError{fmt.Errorf("command %q is not known: hello help lists them", verb)}
	}
}
