// Command hardtack builds, runs and operates Kubernetes clusters of immutable machines that all boot one image:
//
//   - the image: its components (lock), units and roles (lint, roles), its files (tree), AMIs and channels (image)
//   - a cluster document: its values (complete, explain), the machines' user data (userdata), the authorities (pki)
//   - its DNS records (dns), and the function that keeps them on AWS (lambda)
//   - a cluster on AWS (stack), or of virtual machines on this computer (lab), and its etcd (etcd)
//
// The program only translates: flags to calls of the packages below pkg, their results to text or JSON on stdout, their errors
// to hints that name a command or a flag. It exits with 0, with 1 after an error, with 2 after a wrong command line, with 3 if
// a command reports a difference by its exit status (see the commands' help), and with 130 after Ctrl-C.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
)

func main() {
	os.Exit(mainExit())
}

// mainExit runs the program with the process's arguments and files, and returns its exit code.
func mainExit() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends the process, whatever it is waiting for
	app := newApp(os.Stdout, os.Stderr)
	if n := len(os.Args) - 1; n > 1 && os.Args[n] == completionFlag {
		complete(ctx, app, os.Args[:n])
		return 0
	}
	err := app.RunContext(ctx, ordered(app, os.Args))
	if err == nil {
		return 0
	}
	if ctx.Err() != nil {
		fmt.Fprint(os.Stderr, "hardtack: interrupted\n", besidesCancelled(err))
		return 130
	}
	fmt.Fprintln(os.Stderr, onStderr(red, "hardtack:"), err)
	return exitCode(err)
}

// besidesCancelled are the lines of an interrupted command's error that say more than that it was interrupted: what it left
// behind, and what goes on without it.
func besidesCancelled(err error) string {
	var b strings.Builder
	for line := range strings.Lines(err.Error() + "\n") {
		if !strings.HasSuffix(strings.TrimSpace(line), context.Canceled.Error()) {
			b.WriteString(line)
		}
	}
	return b.String()
}
