package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"path/filepath"
	"text/tabwriter"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/awsconfig"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/boot"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/certs"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/command"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/config"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/reason"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/systemd"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/timeline"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki/store"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// awsEndpoint is the systemd credential with a base endpoint for all AWS services, for labs.
const awsEndpoint = "hardtack.aws-endpoint"

// certsPatience bounds one run's wait for the network and the store. After it the unit fails with a reason, and
// systemd starts it again, so that units ordered after it do not wait forever.
const certsPatience = 2 * time.Minute

// certsFlags is the command line of the commands that read the store.
type certsFlags struct {
	root, role      string
	patience        time.Duration
	asJSON, verbose bool
	effective       config.Effective
	roles           role.Set
	store           store.Store
	// secrets is the store as a machine reads it that joins.
	secrets certs.Secrets
	verb    string
}

func (f *certsFlags) parse(verb string, patience time.Duration, args []string, s command.Streams) (done bool, err error) {
	f.verb = verb
	flags := flag.NewFlagSet(verb, flag.ContinueOnError)
	flags.StringVar(&f.root, "root", "/", "")
	if verb == "certs" {
		flags.StringVar(&f.role, "role", "", "")
	}
	flags.DurationVar(&f.patience, "patience", patience, "")
	flags.BoolVar(&f.asJSON, "json", false, "")
	flags.BoolVar(&f.verbose, "v", false, "")
	if done, err = command.ParseFlags(flags, args, s, usage); done || err != nil {
		return done, err
	}
	f.root, err = filepath.Abs(f.root)
	return false, err
}

// open reads the machine's configuration, opens its store, and completes the configuration with the cluster's own
// facts.
func (f *certsFlags) open(ctx context.Context, s command.Streams) (err error) {
	if f.effective, err = command.ReadConfig(f.root); err != nil {
		return err
	}
	if f.roles, err = f.wanted(); err != nil {
		return err
	}
	if f.store, err = openStore(ctx, f.root, f.effective, 2); err != nil {
		return err
	}
	if f.secrets = f.store; f.verb != "certs" && f.roles.Has(role.Minions) {
		f.secrets = certs.Ahead(f.store, f.effective)
	}
	return f.learn(ctx, s)
}

// openStore opens the cluster's store; attempts bounds the tries of one call, which are spread by the caller; 0 is the SDK's
// default.
func openStore(ctx context.Context, root string, effective config.Effective, attempts int) (store.Store, error) {
	location, err := store.ParseLocation(effective.Store)
	if err != nil {
		return nil, reason.With(reason.Config, err)
	}
	endpoint, err := systemd.Credential(awsEndpoint)
	if err != nil {
		return nil, err
	}
	s, err := store.Open(ctx, location, awsconfig.Machine{Endpoint: endpoint, Metadata: boot.ReadFacts(root).Endpoint, Attempts: attempts, Spread: attempts > 0}.Load)
	return s, reason.With(reason.Store, err)
}

// wanted returns the role of --role, else the machine's roles.
func (f *certsFlags) wanted() (role.Set, error) {
	have, err := config.Roles(f.root)
	if err != nil || f.role == "" {
		return have, err
	}
	r, err := role.Parse(f.role)
	if err != nil {
		return nil, command.UsageError{Err: fmt.Errorf("%s: --role: %w", f.verb, err)}
	}
	return role.NewSet(r), nil
}

// certsCommand is hardtack-agent certs.
func certsCommand(ctx context.Context, args []string, s command.Streams) error {
	var f certsFlags
	if done, err := f.parse("certs", certsPatience, args, s); done || err != nil {
		return err
	}
	var minted []certs.Minted
	err := unitRun(ctx, s, "certs", timeline.PhaseCerts, func(ctx context.Context) (err error) {
		if err := f.open(ctx, s); err != nil {
			return err
		}
		if minted, err = f.mint(ctx, s); err != nil || !f.roles.Has(role.Masters) {
			return err
		}
		// The controller looks too: without this it would only miss an epoch that begins while the machine boots.
		if err := (certs.Epochs{Root: f.root, Store: f.store}).Begin(ctx); err != nil {
			s.Logger(f.verbose).WarnContext(ctx, "which epoch of etcd the daemons begin in is not known", "error", err)
		}
		return nil
	})
	if err != nil {
		return err
	}
	systemd.Status(mintedStatus(minted))
	return showMinted(s.Out, minted, f.asJSON)
}

func (f *certsFlags) mint(ctx context.Context, s command.Streams) ([]certs.Minted, error) {
	return certs.Mint(ctx, certs.MintOptions{
		Root: f.root, Roles: f.roles, Config: f.effective, Store: f.store, Host: certs.ThisHost, Now: time.Now,
		Patience: f.patience, Status: systemd.Status, Log: s.Logger(f.verbose),
	})
}

// mintedStatus is the status that systemctl shows after minting.
func mintedStatus(minted []certs.Minted) string {
	var first time.Time
	for _, m := range minted {
		for _, c := range m.Certificates {
			if first.IsZero() || c.Expires.Before(first) {
				first = c.Expires
			}
		}
	}
	if first.IsZero() {
		return ""
	}
	return "certificates are there, the first expires at " + first.UTC().Format(time.RFC3339)
}

func showMinted(w io.Writer, minted []certs.Minted, asJSON bool) error {
	if asJSON {
		return printJSON(w, minted)
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, m := range minted {
		for _, c := range m.Certificates {
			fmt.Fprintf(t, "%s\t%s\texpires %s\trenewed from %s\n", m.Action, c.Path, c.Expires.UTC().Format(time.RFC3339), c.Renew.UTC().Format(time.RFC3339))
		}
	}
	return t.Flush()
}
