//go:build linux

// Command hardtack-init is the first program of a machine with a sealed root, in its initial RAM disk: see pkg/node/sealed.
package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"

	"github.com/hardtack/packer-plugin-hardtack/pkg/node/sealed"
)

func main() {
	if os.Getpid() != 1 {
		fmt.Fprintln(os.Stderr, "hardtack-init: it is the first program of a machine, and does nothing on one that runs")
		os.Exit(2)
	}
	err := sealed.Boot(context.Background(), slog.New(slog.NewTextHandler(console{}, &slog.HandlerOptions{ReplaceAttr: untimed})))
	fmt.Fprintf(console{}, "this machine does not boot: %v\n", err)
	os.Exit(1) // the kernel panics, and starts again after the time of its argument panic=
}

// untimed leaves the time out, which the kernel's log has.
func untimed(_ []string, a slog.Attr) slog.Attr {
	if a.Key == slog.TimeKey {
		return slog.Attr{}
	}
	return a
}

// console is the kernel's log, and so its consoles; and the first of those where there is no log yet.
type console struct{}

var _ io.Writer = console{}

func (console) Write(p []byte) (int, error) {
	f, err := os.OpenFile("/dev/kmsg", os.O_WRONLY, 0)
	if err != nil {
		return os.Stderr.Write(p)
	}
	defer func() { _ = f.Close() }() // each write is a line of its own
	if _, err := f.Write(append([]byte("<4>hardtack-init: "), p...)); err != nil {
		return os.Stderr.Write(p)
	}
	return len(p), nil
}
