// Command hardtack-agent is the part of Hardtack that runs on the machines, as the body of systemd units: it names the
// node, mints certificates, waits for what daemons need, applies the addons, approves nodes on masters, passes EC2's notices
// on, runs the member of etcd, reports when the machine's roles work, and measures the boot. The user data and the role
// files are hardtack-userdata's, which is a program of its own since every boot waits for it.
//
// Its flags are the standard library's: urfave/cli makes the program 2.1 MB larger (8.7 instead of
// 6.6), and it goes into every image.
package main

import (
	"context"
	"os"

	"github.com/hardtack/packer-plugin-hardtack/pkg/node/command"
)

func main() { os.Exit(command.Main(context.Background(), "hardtack-agent", dispatch)) }
