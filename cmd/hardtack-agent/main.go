// Command hardtack-agent is the part of Hardtack that runs on the machines, as the body of systemd units: it reads the user
// data and writes the role files, names the node, mints certificates, waits for what daemons need, applies the addons,
// approves nodes on masters, passes EC2's notices on, runs the member of etcd, reports when the machine's roles work, and measures the boot.
//
// Its flags are the standard library's: urfave/cli makes the program 2.1 MB larger (8.7 instead of
// 6.6), and it goes into every image.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/hardtack/packer-plugin-hardtack/pkg/node/systemd"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := dispatch(ctx, os.Args[1:], streams{os.Stdout, os.Stderr, systemd.Unit()})
	stop()
	if err == nil {
		return
	}
	var reported reportedError
	if !errors.As(err, &reported) {
		fmt.Fprintf(os.Stderr, "hardtack-agent: %v\n", err)
	}
	var usage usageError
	if errors.As(err, &usage) {
		os.Exit(2)
	}
	os.Exit(1)
}
