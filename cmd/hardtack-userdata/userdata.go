package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"text/tabwriter"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/version"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/boot"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/command"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/imds"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/reason"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/systemd"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/timeline"
)

// usage is the complete help text.
const usage = `hardtack-userdata finds this machine's user data, writes its files, and removes every role file that it does not ask for.

usage:
  hardtack-userdata [--dry-run] [--json] [--root DIR] [--deadline 2m] [-v]
  hardtack-userdata version

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

// dispatch runs the program with the arguments.
func dispatch(ctx context.Context, args []string, s command.Streams) error {
	switch {
	case len(args) == 1 && args[0] == "version":
		_, err := fmt.Fprintln(s.Out, version.String())
		return err
	case len(args) == 1 && args[0] == "help":
		_, err := io.WriteString(s.Out, usage)
		return err
	}
	return read(ctx, args, s)
}

// read reads the user data.
func read(ctx context.Context, args []string, s command.Streams) error {
	flags := flag.NewFlagSet("userdata", flag.ContinueOnError)
	root := flags.String("root", "/", "")
	deadline := flags.Duration("deadline", boot.DefaultDeadline, "")
	dryRun := flags.Bool("dry-run", false, "")
	asJSON := flags.Bool("json", false, "")
	verbose := flags.Bool("v", false, "")
	if done, err := command.ParseFlags(flags, args, s, usage); done || err != nil {
		return err
	}
	if *deadline <= 0 {
		return command.UsageError{Err: fmt.Errorf("--deadline %v: must be longer than nothing", *deadline)}
	}
	log := s.Logger(*verbose)
	attempt := try{}
	if !*dryRun && !*asJSON { // which start nothing either
		attempt = begin(s, *root, tryFile)
	}
	report, err := boot.Run(ctx, boot.Options{
		Root:        *root,
		Credentials: os.Getenv("CREDENTIALS_DIRECTORY"),
		Metadata: func(endpoint string) (boot.Metadata, error) {
			return imds.New(imds.Options{Endpoint: endpoint, Log: log})
		},
		NoUserData: imds.ErrNotFound,
		Deadline:   *deadline,
		DryRun:     *dryRun,
		Units:      manager(*root),
		Log:        log,
	})
	if printing := show(s.Out, report, *asJSON); err == nil {
		if *dryRun || *asJSON {
			return printing
		}
		if err := attempt.succeed(ctx, log, startEveryUnit); err != nil {
			return s.Fail(name, err)
		}
		s.Works(timeline.PhaseUserData)
		return errors.Join(printing, reportIncomplete(s, *root))
	}
	if *asJSON {
		return err // the report is the only thing on stdout
	}
	return s.Fail(name, reason.With(boot.ReasonOf(err), err))
}

// name is the name of this program.
const name = "hardtack-userdata"

// reportIncomplete reports an incomplete configuration at once, for which the machine's other units wait: they start later and
// load a program each. The error is not this unit's, which succeeds.
func reportIncomplete(s command.Streams, root string) error {
	if _, err := command.ReadConfig(root); err != nil && s.Unit == command.ReaderUnit {
		_, writeErr := s.Report(name, err)
		return writeErr
	}
	return nil
}

// manager returns a function that connects to systemd; nil if root is not this machine's own tree.
func manager(root string) func(context.Context) (boot.Units, error) {
	if root != "/" {
		return nil
	}
	return func(ctx context.Context) (boot.Units, error) { return systemd.NewManager(ctx) }
}

// show prints the report: as JSON, or as a line about the roles and one for each file and finding.
func show(w io.Writer, r boot.Report, asJSON bool) error {
	if asJSON {
		return printJSON(w, r)
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	switch {
	case r.Kept:
		fmt.Fprintf(t, "roles %s, kept from before (instance %s)\n", r.Roles, r.InstanceID)
	case len(r.Roles) > 0:
		fmt.Fprintf(t, "roles %s, from %s (%s)\n", r.Roles, r.Source, r.From)
	default:
		fmt.Fprintln(t, "roles none")
	}
	for _, f := range r.Files {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", f.Action, f.Path, f.Mode, f.Owner)
	}
	for _, p := range r.Findings {
		fmt.Fprintln(t, p)
	}
	return t.Flush()
}
