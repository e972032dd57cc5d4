// Package moto starts the server of moto, a Python imitation of AWS, for the tests that compare awsfake with it.
package moto

import (
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/judges"
	"github.com/hardtack/packer-plugin-hardtack/pkg/base/run"
)

// startBound is longer than any start takes: Python reads a hundred services' code from a cold disk.
const startBound = 2 * time.Minute

// Find returns the path of moto's server: from PATH, or from the directory of scripts/setup --judges. If it is not
// installed, the test is skipped with a hint.
func Find(tb testing.TB) string {
	tb.Helper()
	path, missing := exec.LookPath("moto_server")
	if missing == nil {
		return path
	}
	path = judges.Path("bin", "moto_server")
	if _, err := os.Stat(path); err != nil {
		tb.Skipf("moto, the stand-in for AWS, is not installed (scripts/setup --judges): %v", missing)
	}
	return path
}

// Start starts moto's server on a free loopback port and returns its address ("http://host:port") once it listens.
// environment ("NAME=value") is added to the process's environment. The server ends with the test; the test fails if
// it does not start within two minutes.
func Start(tb testing.TB, environment ...string) string {
	tb.Helper()
	program := Find(tb)
	address := free(tb)
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		tb.Fatal(err)
	}
	// The test's own context ends before its clean-ups, some of which still ask.
	ctx, stop := context.WithCancel(context.WithoutCancel(tb.Context()))
	ended := make(chan error, 1)
	go func() {
		ended <- run.Run(ctx, run.Command{Name: program, Args: []string{"-H", "127.0.0.1", "-p", port}, Env: append(os.Environ(), environment...)})
	}()
	tb.Cleanup(func() {
		stop()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			tb.Logf("moto has ended by itself: %v", err)
		}
	})
	starting, cancel := context.WithTimeout(tb.Context(), startBound)
	defer cancel()
	for !listens(starting, address) {
		select {
		case err := <-ended:
			close(ended)
			tb.Fatalf("moto ended: %v", err)
		case <-starting.Done():
			tb.Fatalf("moto does not listen: %v", starting.Err())
		case <-time.After(50 * time.Millisecond):
		}
	}
	return "http://" + address
}

// free returns a loopback address with a free port.
func free(tb testing.TB) string {
	tb.Helper()
	listener, err := (&net.ListenConfig{}).Listen(tb.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	defer func() { _ = listener.Close() }() // nothing was sent
	return listener.Addr().String()
}

func listens(ctx context.Context, address string) bool {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	return err == nil && conn.Close() == nil
}
