package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"time"
)

// patience is how long a verb waits for its answers.
const patience = 10 * time.Second

func fetch(ctx context.Context, args []string, s streams) error {
	flags := flag.NewFlagSet("fetch", flag.ContinueOnError)
	timeout := flags.Duration("timeout", patience, "")
	if err := parse(flags, args, 1, -1); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, *timeout)
	defer cancel()
	for _, url := range flags.Args() {
		if err := get(ctx, url, s.out); err != nil {
			return err
		}
	}
	return nil
}

func get(ctx context.Context, url string, out io.Writer) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return usageError{err}
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = answer.Body.Close() }() // only read
	if _, err := io.Copy(out, answer.Body); err != nil {
		return err
	}
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %s", url, answer.Status)
	}
	return nil
}

func resolve(ctx context.Context, args []string, s streams) error {
	flags := flag.NewFlagSet("resolve", flag.ContinueOnError)
	timeout := flags.Duration("timeout", patience, "")
	if err := parse(flags, args, 1, -1); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, *timeout)
	defer cancel()
	for _, name := range flags.Args() {
		addresses, err := net.DefaultResolver.LookupHost(ctx, name)
		if err != nil {
			return err
		}
		slices.Sort(addresses)
		for _, a := range addresses {
			fmt.Fprintf(s.out, "%s %s\n", name, a)
		}
	}
	return nil
}
