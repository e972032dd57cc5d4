package lab

import (
	"bufio"
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"testing"
)

// The test program is also a machine's process, which does nothing, and a whole daemon, which can be killed.
const (
	machineMode = "machine"
	daemonMode  = "daemon"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case machineMode:
			select {}
		case daemonMode:
			if err := daemonMain(os.Args[2], os.Args[3]); err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
			return
		}
	}
	os.Exit(m.Run())
}

// daemonMain runs a lab with machines that only pretend, until it is killed or asked to end.
func daemonMain(root, name string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	home, err := NewHome(root, name)
	if err != nil {
		return err
	}
	plan, err := testPlan()
	if err != nil {
		return err
	}
	return Run(ctx, Config{Home: home, Plan: plan, Runner: pretend(plan, true), Log: slog.New(slog.NewTextHandler(os.Stderr, nil))}, func() {
		out := bufio.NewWriter(os.Stdout)
		fmt.Fprintln(out, "ready")
		_ = out.Flush()
	})
}
