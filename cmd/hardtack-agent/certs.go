package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/agent"
	"github.com/hardtack/packer-plugin-hardtack/pkg/agent/certs"
	"github.com/hardtack/packer-plugin-hardtack/pkg/agent/config"
	"github.com/hardtack/packer-plugin-hardtack/pkg/agent/reason"
	"github.com/hardtack/packer-plugin-hardtack/pkg/awsconfig"
	"github.com/hardtack/packer-plugin-hardtack/pkg/machine"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
	"github.com/hardtack/packer-plugin-hardtack/pkg/store"
	"github.com/hardtack/packer-plugin-hardtack/pkg/systemd"
)

// awsEndpoint is the systemd credential that names another base endpoint for all of AWS: a laboratory's.
const awsEndpoint = "hardtack.aws-endpoint"

// certsPatience bounds one run's wait for the network and the store. Then the unit fails with the reason, and systemd
// starts it again: what is ordered after it is not held up for ever.
const certsPatience = 2 * time.Minute

// certsFlags is the command line of the verbs that read the store.
type certsFlags struct {
	root, role      string
	patience        time.Duration
	asJSON, verbose bool
	config          machine.Config
	roles           role.Set
	store           store.Store
	verb            string
}

func (f *certsFlags) parse(verb string, patience time.Duration, args []string, s streams) (done bool, err error) {
	f.verb = verb
	flags := flag.NewFlagSet(verb, flag.ContinueOnError)
	flags.StringVar(&f.root, "root", "/", "")
	if verb == "certs" {
		flags.StringVar(&f.role, "role", "", "")
	}
	flags.DurationVar(&f.patience, "patience", patience, "")
	flags.BoolVar(&f.asJSON, "json", false, "")
	flags.BoolVar(&f.verbose, "v", false, "")
	if done, err = parseFlags(flags, args, s); done || err != nil {
		return done, err
	}
	f.root, err = filepath.Abs(f.root)
	return false, err
}

// open reads what the machine is told, and opens its store.
func (f *certsFlags) open(ctx context.Context) (err error) {
	if f.config, err = config.Read(f.root); err != nil {
		return err
	}
	if f.roles, err = f.wanted(); err != nil {
		return err
	}
	location, err := store.ParseLocation(f.config.Store)
	if err != nil {
		return reason.Errorf(reason.Config, "%s: %w", machine.Path, err)
	}
	endpoint, err := readEndpoint(os.Getenv("CREDENTIALS_DIRECTORY"))
	if err != nil {
		return err
	}
	metadata, _ := agent.MetadataService(f.root)
	f.store, err = store.Open(ctx, location, awsconfig.Machine{Endpoint: endpoint, Metadata: metadata, Attempts: 2}.Load)
	return reason.With(reason.Store, err)
}

// wanted are the role that was named, else those of the machine.
func (f *certsFlags) wanted() (role.Set, error) {
	have, err := config.Roles(f.root)
	if err != nil || f.role == "" {
		return have, err
	}
	r, err := role.Parse(f.role)
	if err != nil {
		return nil, usageError{fmt.Errorf("%s: --role: %w", f.verb, err)}
	}
	return role.NewSet(r), nil
}

// readEndpoint returns the endpoint that stands in for AWS, "" where there is none.
func readEndpoint(credentials string) (string, error) {
	if credentials == "" {
		return "", nil
	}
	data, err := os.ReadFile(filepath.Join(credentials, awsEndpoint))
	if errors.Is(err, os.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("reading the credential %s: %w", awsEndpoint, err)
	}
	return strings.TrimSpace(string(data)), nil
}

// certsCommand is hardtack-agent certs.
func certsCommand(ctx context.Context, args []string, s streams) error {
	var f certsFlags
	if done, err := f.parse("certs", certsPatience, args, s); done || err != nil {
		return err
	}
	if err := f.open(ctx); err != nil {
		return fail(s, "certs", err)
	}
	minted, err := f.mint(ctx, s)
	if err != nil {
		return fail(s, "certs", err)
	}
	systemd.Status(mintedStatus(minted))
	return showMinted(s.out, minted, f.asJSON)
}

func (f *certsFlags) mint(ctx context.Context, s streams) ([]certs.Minted, error) {
	return certs.Mint(ctx, certs.MintOptions{
		Root: f.root, Roles: f.roles, Config: f.config, Store: f.store, Host: certs.ThisHost, Now: time.Now,
		Patience: f.patience, Status: systemd.Status, Log: logger(s.err, f.verbose),
	})
}

// mintedStatus is what systemctl status shows of a unit that is done.
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
		enc := json.NewEncoder(w)
		enc.SetIndent("", "  ")
		return enc.Encode(minted)
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, m := range minted {
		for _, c := range m.Certificates {
			fmt.Fprintf(t, "%s\t%s\texpires %s\trenewed from %s\n", m.Action, c.Path, c.Expires.UTC().Format(time.RFC3339), c.Renew.UTC().Format(time.RFC3339))
		}
	}
	return t.Flush()
}
