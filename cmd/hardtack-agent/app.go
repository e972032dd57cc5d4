package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"

	"github.com/hardtack/packer-plugin-hardtack/pkg/version"
)

// usage is the whole help.
const usage = `hardtack-agent is the part of Hardtack that runs on the machines.

usage:
  hardtack-agent userdata [--dry-run] [--json] [--root DIR] [--deadline 2m] [-v]
      find this machine's user data, write its files, and leave exactly the role files that it asks for
  hardtack-agent node [--dry-run] [--json] [--root DIR] [--deadline 2m] [-v]
      name this machine as a node, and write its part of the kubelet's and the pods' network's configuration
  hardtack-agent ready [--stall 5m] [--certain 20s] [--root DIR] [-v]
      wait until the machine's roles work, end its launch, and write the boot's timeline
  hardtack-agent timeline [--json] [--root DIR]
      say where the time of this boot went
  hardtack-agent wait [--api] [--file FILE]... [URL]...
      wait until files are there and a server answers; wait --help lists its flags
  hardtack-agent addons [--kubeconfig FILE] [--machine FILE] [--dir DIR] [--extra DIR] [-v]
      apply what every cluster needs, from the manifests in the image
  hardtack-agent controller [--root DIR] [--kubeconfig FILE] [-v]
      on masters: the token by which machines join, nodes' server certificates and role labels, nodes that are gone
  hardtack-agent certs [--role ROLE] [--patience 2m] [--json] [--root DIR] [-v]
      mint what the daemons of the machine's roles, or of one, need and do not have
  hardtack-agent bootstrap [--patience DURATION] [--json] [--root DIR] [-v]
      wait for the cluster's bootstrap token, and write what a minion's daemons start with
  hardtack-agent renew [--patience 2m] [--json] [--root DIR] [-v]
      mint again what is due, and bring a minion the newest token
  hardtack-agent version
      print the version

User data is looked for, in this order, in
  credential  the systemd credential hardtack.userdata (and hardtack.instance-id): SMBIOS, a container's,
              or systemd.set_credential= on the kernel command line
  seed        /var/lib/cloud/seed/nocloud or nocloud-net
  volume      a vfat or iso9660 volume labelled cidata (not on EC2)
  file        /etc/hardtack/user-data
  imds        the instance metadata service, version 2 (on EC2)

The kernel command line may name the sources to ask, hardtack.userdata=imds or
hardtack.userdata=seed,file, and another endpoint, hardtack.imds=http://[fd00:ec2::254].

Exit status: 0 when the machine has its role, 1 when it has none, 2 when the command was not understood.
`

// streams are where a command writes: the answer to out, the story to err.
type streams struct{ out, err io.Writer }

// usageError is a command line that was not understood.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// dispatch runs the verb.
func dispatch(ctx context.Context, args []string, s streams) error {
	if len(args) == 0 {
		return usageError{errors.New("no command: hardtack-agent help lists them")}
	}
	verb, rest := args[0], args[1:]
	switch verb {
	case "userdata":
		return userdataCommand(ctx, rest, s)
	case "node":
		return nodeCommand(ctx, rest, s)
	case "ready":
		return readyCommand(ctx, rest, s)
	case "timeline":
		return timelineCommand(ctx, rest, s)
	case "wait":
		return waitCommand(ctx, rest, s)
	case "addons":
		return addonsCommand(ctx, rest, s)
	case "controller":
		return controllerCommand(ctx, rest, s)
	case "certs":
		return certsCommand(ctx, rest, s)
	case "bootstrap":
		return bootstrapCommand(ctx, rest, s)
	case "renew":
		return renewCommand(ctx, rest, s)
	case "version":
		if len(rest) > 0 {
			return usageError{fmt.Errorf("version takes no arguments, and got %q", rest)}
		}
		_, err := fmt.Fprintln(s.out, version.String())
		return err
	case "help", "--help", "-h":
		_, err := io.WriteString(s.out, usage)
		return err
	}
	return usageError{fmt.Errorf("command %q is not known: hardtack-agent help lists them", verb)}
}

// parseFlags parses a verb's flags; done says that help was asked for and printed.
func parseFlags(flags *flag.FlagSet, args []string, s streams) (done bool, err error) {
	flags.SetOutput(io.Discard) // the error is returned, and help is the one above
	err = flags.Parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		_, err := io.WriteString(s.out, usage)
		return true, err
	case err != nil:
		return false, usageError{fmt.Errorf("%s: %w", flags.Name(), err)}
	case flags.NArg() > 0:
		return false, usageError{fmt.Errorf("%s takes no arguments, and got %q", flags.Name(), flags.Args())}
	}
	return false, nil
}
