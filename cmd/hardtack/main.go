// Command hardtack looks at what an image is made of: the lock of its components, the units and the
// roles that start them.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/urfave/cli/v2"
)

func main() {
	os.Exit(mainExit())
}

// mainExit runs the program on the process's own arguments and files and returns its exit code: 0, or
// 1 with the reason on stderr, 2 when it was called wrongly, or 130 after Ctrl-C, as shells count.
func mainExit() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := newApp(os.Stdout, os.Stderr).RunContext(ctx, os.Args)
	if err == nil {
		return 0
	}
	if ctx.Err() != nil {
		fmt.Fprintln(os.Stderr, "hardtack: interrupted")
		return 130
	}
	fmt.Fprintln(os.Stderr, "hardtack:", err)
	var coder cli.ExitCoder
	if errors.As(err, &coder) {
		return coder.ExitCode()
	}
	return 1
}
