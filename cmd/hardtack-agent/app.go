package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/version"
)

// usage is the complete help text.
const usage = `hardtack-agent is the part of Hardtack that runs on the machines.

usage:
  hardtack-agent userdata [--dry-run] [--json] [--root DIR] [--deadline 2m] [-v]
      find this machine's user data, write its files, and remove every role file that it does not ask for
  hardtack-agent config [--json] [--root DIR]
      print this machine's configuration, and where each value comes from
  hardtack-agent node [--dry-run] [--json] [--root DIR] [--deadline 2m] [-v]
      name this machine as a node, and write its part of the kubelet's and the pods' network's configuration
  hardtack-agent ready [--stall 5m] [--certain 20s] [--root DIR] [-v]
      wait until the machine's roles work, complete its launch hook, and write the boot's timeline
  hardtack-agent timeline [--json] [--root DIR]
      print how long each step of this boot took
  hardtack-agent wait [--api] [--file FILE]... [URL]...
      wait until files exist and a server answers; wait --help lists its flags
  hardtack-agent addons [--kubeconfig FILE] [--root DIR] [--dir DIR] [--extra DIR] [-v]
      apply the manifests in the image that every cluster needs
  hardtack-agent controller [--root DIR] [--kubeconfig FILE] [-v]
      on masters: renew the token by which machines join, approve nodes' server certificates, label nodes with their
      roles, and remove nodes whose machines are gone
  hardtack-agent certs [--role ROLE] [--patience 2m] [--json] [--root DIR] [-v]
      create the missing certificates of the daemons of the machine's roles, or of one role
  hardtack-agent bootstrap [--patience DURATION] [--json] [--root DIR] [-v]
      get the node its certificate, and write the files that a minion's daemons start with
  hardtack-agent renew [--patience 2m] [--json] [--root DIR] [-v]
      renew the certificates that are due
  hardtack-agent member [--patience 2m] [--root DIR] [-v]
      run the machine's member of etcd: decide from the cluster's records whether and how it starts, and watch it
  hardtack-agent notices [--root DIR] [--kubeconfig FILE] [-v]
      on minions of EC2: show the notices of the instance's end in a condition of the node
  hardtack-agent version
      print the version

User data is looked for, in this order, in
  credential  the systemd credential hardtack.userdata (and hardtack.instance-id): SMBIOS, a container's,
              or systemd.set_credential= on the kernel command line
  seed        /var/lib/cloud/seed/nocloud or nocloud-net
  volume      a vfat or iso9660 volume labelled cidata (not on EC2), at the first boot; later what was read then
  file        /etc/hardtack/user-data
  imds        the instance metadata service, version 2 (on EC2)

The kernel command line may name the sources to ask, hardtack.userdata=imds or
hardtack.userdata=seed,file (with volume in the list it is read at each boot), and another endpoint, hardtack.imds=http://[fd00:ec2::254].

Exit status: 0 when the machine has its role, 1 when it has none, 2 when the command was not understood.
`

// streams are a command's outputs: out for results, err for logs.
type streams struct {
	out, err io.Writer
	// unit is the unit that the process runs in; empty if a person runs it.
	unit string
}

// usageError is a wrong command line.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// dispatch runs the command in args.
func dispatch(ctx context.Context, args []string, s streams) error {
	if len(args) == 0 {
		return usageError{errors.New("no command: hardtack-agent help lists them")}
	}
	verb, rest := args[0], args[1:]
	switch verb {
	case "userdata":
		return userdataCommand(ctx, rest, s)
	case "config":
		return configCommand(ctx, rest, s)
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
	case "member":
		return memberCommand(ctx, rest, s)
	case "notices":
		return noticesCommand(ctx, rest, s)
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

// parseFlags parses a command's flags; done is true if it printed the help.
func parseFlags(flags *flag.FlagSet, args []string, s streams) (done bool, err error) {
	flags.SetOutput(io.Discard) // the error is returned, and the help is usage
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
