package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"text/tabwriter"

	"github.com/hardtack/packer-plugin-hardtack/pkg/node/boot"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/imds"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/reason"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/systemd"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/timeline"
)

// userdataCommand is hardtack-agent userdata.
func userdataCommand(ctx context.Context, args []string, s streams) error {
	flags := flag.NewFlagSet("userdata", flag.ContinueOnError)
	root := flags.String("root", "/", "")
	deadline := flags.Duration("deadline", boot.DefaultDeadline, "")
	dryRun := flags.Bool("dry-run", false, "")
	asJSON := flags.Bool("json", false, "")
	verbose := flags.Bool("v", false, "")
	if done, err := parseFlags(flags, args, s); done || err != nil {
		return err
	}
	if *deadline <= 0 {
		return usageError{fmt.Errorf("--deadline %v: must be longer than nothing", *deadline)}
	}
	log := logger(s.err, *verbose)
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
	if printing := show(s.out, report, *asJSON); err == nil {
		if *dryRun || *asJSON {
			return printing
		}
		if err := startSkipped(ctx, s, *root, log); err != nil {
			return fail(s, "userdata", err)
		}
		reportWorking(s, timeline.PhaseUserData)
		return errors.Join(printing, reportIncomplete(s, *root))
	}
	if *asJSON {
		return err // the report is the only thing on stdout
	}
	return fail(s, "userdata", reason.With(boot.ReasonOf(err), err))
}

// everyUnit is the target that wants all units of all roles.
const everyUnit = "multi-user.target"

// startSkipped starts the units of the machine's roles if this boot's first tries to read the user data have failed: they
// have looked at their conditions then. At the first try they wait for this unit.
func startSkipped(ctx context.Context, s streams, root string, log *slog.Logger) error {
	if s.unit != readerUnit || root != "/" {
		return nil
	}
	m, err := systemd.NewManager(ctx)
	if err != nil {
		return err
	}
	defer m.Close()
	u, err := m.Unit(ctx, s.unit)
	if err != nil || u.Restarts == 0 {
		return err
	}
	log.InfoContext(ctx, "starting the units that were skipped before there was user data", "tries", u.Restarts+1)
	return m.Start(ctx, everyUnit)
}

// reportIncomplete reports an incomplete configuration at once, for which the machine's other units wait: they start later and
// load a program each. The error is not this unit's, which succeeds.
func reportIncomplete(s streams, root string) error {
	if _, err := readConfig(root); err != nil && s.unit == readerUnit {
		_, writeErr := reportFailure(s, "userdata", err)
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

// logger logs without times, since the journal and the console add them.
func logger(w io.Writer, verbose bool) *slog.Logger {
	level := slog.LevelInfo
	if verbose {
		level = slog.LevelDebug
	}
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: level, ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
		if len(groups) == 0 && a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}}))
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
