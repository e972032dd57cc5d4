// Package moto starts moto's server, an imitation of AWS that others keep, for the tests that are judged by it.
package moto

import (
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// startBound is what no start takes: Python reads a hundred services' code from a cold disk.
const startBound = 2 * time.Minute

// Find returns the path of moto's server: from PATH, or from where scripts/setup --judges puts it. Without one the test
// is skipped, and says how to get it.
func Find(t testing.TB) string {
	t.Helper()
	path, missing := exec.LookPath("moto_server")
	if missing == nil {
		return path
	}
	data := os.Getenv("XDG_DATA_HOME")
	if data == "" {
		data = filepath.Join(os.Getenv("HOME"), ".local", "share")
	}
	path = filepath.Join(data, "hardtack", "judges", "bin", "moto_server")
	if _, err := os.Stat(path); err != nil {
		t.Skipf("moto, the stand-in for AWS, is not installed (scripts/setup --judges): %v", missing)
	}
	return path
}

// Start starts moto's server on a free port of loopback and returns its address once it listens, as "http://host:port".
// environment is added to the process's own ("NAME=value"). The server ends with the test.
func Start(t testing.TB, environment ...string) string {
	t.Helper()
	program := Find(t)
	address := free(t)
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	// The test's own context ends before its clean-ups, some of which still ask.
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	cmd := exec.CommandContext(ctx, program, "-H", "127.0.0.1", "-p", port)
	cmd.Env = append(os.Environ(), environment...)
	var output strings.Builder
	cmd.Stdout, cmd.Stderr = &output, &output
	if err := cmd.Start(); err != nil {
		stop()
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = cmd.Wait() // that it was killed is no error; what it said otherwise is shown
	}()
	t.Cleanup(func() {
		stop()
		<-ended
	})
	starting, cancel := context.WithTimeout(t.Context(), startBound)
	defer cancel()
	for !listens(starting, address) {
		select {
		case <-ended:
			t.Fatalf("moto ended: %v\n%s", cmd.ProcessState, output.String())
		case <-starting.Done():
			t.Fatalf("moto does not listen: %v", starting.Err())
		case <-time.After(50 * time.Millisecond):
		}
	}
	return "http://" + address
}

// free is an address of loopback on which nobody listens.
func free(t testing.TB) string {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }() // nothing was sent
	return listener.Addr().String()
}

func listens(ctx context.Context, address string) bool {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	return err == nil && conn.Close() == nil
}
