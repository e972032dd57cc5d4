// Command hardtack-userdata reads a machine's user data at boot, writes the role files and the other files of it, and is
// the body of hardtack-userdata.service.
//
// It is a program of its own, and not a command of hardtack-agent, for what it lacks: the clients of AWS and of the
// Kubernetes API. Every unit of a role waits for it, it is the first of ours that a boot reads from a cold disk, and an
// emulated processor pays for each page and for every first run of code. TestReaderImports in package pkg says what it may
// be linked from; BenchmarkReader here measures it beside another program.
package main

import (
	"context"
	"os"

	"github.com/hardtack/packer-plugin-hardtack/pkg/node/command"
)

func main() { os.Exit(command.Main(context.Background(), name, dispatch)) }
