package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"time"
)

const (
	// headerTimeout is how long a client may take for the head of a request.
	headerTimeout = 10 * time.Second
	// lastRequests is how long requests that are under way have when the pod is told to end.
	lastRequests = 5 * time.Second
)

func serve(ctx context.Context, args []string, s streams) error {
	flags := flag.NewFlagSet("serve", flag.ContinueOnError)
	address := flags.String("listen", ":8080", "")
	if err := parse(flags, args, 0, 0); err != nil {
		return err
	}
	return listen(ctx, *address, nil, greeter(s.out))
}

// greeter answers with who answers, and logs a line for each request.
func greeter(log io.Writer) http.Handler {
	host, _ := os.Hostname() // "" says as much
	pod, node := cmp.Or(os.Getenv("POD_NAME"), host), cmp.Or(os.Getenv("NODE_NAME"), "unknown")
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(log, "%s %s from %s\n", r.Method, r.URL.Path, r.RemoteAddr)
		// Who asked shows whether an address was translated on the way.
		fmt.Fprintf(w, "hello from %s on %s to %s\n", pod, node, r.RemoteAddr)
	})
}

// listen serves until the context ends, with TLS where there is a configuration.
func listen(ctx context.Context, address string, config *tls.Config, handler http.Handler) error {
	var c net.ListenConfig
	l, err := c.Listen(ctx, "tcp", address)
	if err != nil {
		return err
	}
	server := &http.Server{Handler: handler, ReadHeaderTimeout: headerTimeout}
	if config != nil {
		l = tls.NewListener(l, config)
	}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(l) }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	rest, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastRequests)
	defer cancel()
	if err := server.Shutdown(rest); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return nil
}

// parse parses flags and counts what is left: at least low, at most high (-1: any number).
func parse(flags *flag.FlagSet, args []string, low, high int) error {
	flags.SetOutput(io.Discard) // the error is returned, and help is another verb
	if err := flags.Parse(args); err != nil {
		return usageError{fmt.Errorf("%s: %w", flags.Name(), err)}
	}
	if n := flags.NArg(); n < low || high >= 0 && n > high {
		return usageError{fmt.Errorf("%s: %d arguments are too few or too many: hello help shows them", flags.Name(), n)}
	}
	return nil
}
