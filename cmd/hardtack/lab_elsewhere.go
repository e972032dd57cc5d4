//go:build !linux

package main

import (
	"runtime"

	"github.com/urfave/cli/v2"
)

// labCommand says where the lab runs: its daemon holds sockets, processes and machines as Linux has them.
func labCommand() *cli.Command {
	return &cli.Command{
		Name:            "lab",
		Usage:           "run a cluster of virtual machines on this computer, from the baked disk; on Linux only",
		SkipFlagParsing: true,
		Action: func(*cli.Context) error {
			return usagef("the lab needs Linux, with KVM to be fast, and this is %s: run hardtack lab on a computer or in a virtual machine with Linux;"+
				" every other command works here", runtime.GOOS)
		},
	}
}

// Completion finds nothing of a lab.
func labNames() []candidate            { return nil }
func noticeKinds() []string            { return nil }
func (l typed) machines() []candidate  { return nil }
func (l typed) volumes() []candidate   { return nil }
func (l typed) labGroups() []candidate { return nil }
