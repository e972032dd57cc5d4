package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/version"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/command"
)

// usage is the complete help text.
const usage = `hardtack-agent is the part of Hardtack that runs on the machines.

usage:
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
      renew the certificates that are due, and start a kubelet again whose node is gone from the API
  hardtack-agent member [--patience 2m] [--root DIR] [-v]
      run the machine's member of etcd: decide from the cluster's records whether and how it starts, and watch it
  hardtack-agent notices [--root DIR] [--kubeconfig FILE] [-v]
      on minions of EC2: show the notices of the instance's end in a condition of the node
  hardtack-agent credentials [--root DIR] REGISTRY[=HOST]...
      answer the kubelet, whose request is the standard input, with the credentials of an image's registry in the
      store; =HOST is the mirror that they are for
  hardtack-agent version
      print the version

The user data is read by a program of its own, hardtack-userdata.

Exit status: 0 when it worked, 1 when it did not, 2 when the command was not understood.
`

// dispatch runs the command in args.
func dispatch(ctx context.Context, args []string, s command.Streams) error {
	if len(args) == 0 {
		return command.UsageError{Err: errors.New("no command: hardtack-agent help lists them")}
	}
	verb, rest := args[0], args[1:]
	switch verb {
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
	case "credentials":
		return credentialsCommand(ctx, rest, s)
	case "version":
		if len(rest) > 0 {
			return command.UsageError{Err: fmt.Errorf("version takes no arguments, and got %q", rest)}
		}
		_, err := fmt.Fprintln(s.Out, version.String())
		return err
	case "help", "--help", "-h":
		_, err := io.WriteString(s.Out, usage)
		return err
	}
	return command.UsageError{Err: fmt.Errorf("command %q is not known: hardtack-agent help lists them", verb)}
}
