package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/agent/certs"
	"github.com/hardtack/packer-plugin-hardtack/pkg/agent/reason"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
	"github.com/hardtack/packer-plugin-hardtack/pkg/systemd"
)

// bootstrapCommand is hardtack-agent bootstrap.
func bootstrapCommand(ctx context.Context, args []string, s streams) error {
	var f certsFlags
	if done, err := f.parse("bootstrap", certs.Forever, args, s); done || err != nil {
		return err
	}
	if err := f.open(ctx); err != nil {
		return fail(s, "bootstrap", err)
	}
	got, err := f.bootstrap(ctx, s)
	if err != nil {
		return fail(s, "bootstrap", err)
	}
	systemd.Status("bootstrap token " + got.Token + ", good until " + got.Expires.UTC().Format(time.RFC3339))
	return showBootstrapped(s.out, got, f.asJSON)
}

func (f *certsFlags) bootstrap(ctx context.Context, s streams) (certs.Bootstrapped, error) {
	return certs.Bootstrap(ctx, certs.BootstrapOptions{
		Root: f.root, Config: f.config, Store: f.store, Now: time.Now,
		Patience: f.patience, Status: systemd.Status, Log: logger(s.err, f.verbose),
	})
}

func showBootstrapped(w io.Writer, b certs.Bootstrapped, asJSON bool) error {
	if asJSON {
		enc := json.NewEncoder(w)
		enc.SetIndent("", "  ")
		return enc.Encode(b)
	}
	_, err := fmt.Fprintf(w, "server %s\nauthority %s\ntoken %s, good until %s\n", b.Server, b.Authority, b.Token, b.Expires.UTC().Format(time.RFC3339))
	return err
}

// renewed is what hardtack-agent renew did.
type renewed struct {
	Minted    []certs.Minted      `json:"minted"`
	Bootstrap *certs.Bootstrapped `json:"bootstrap,omitempty"`
}

// renewCommand is hardtack-agent renew: what is due of every role of the machine, and a minion's newest token. That there
// is no token is no failure of this one: hardtack-bootstrap.service waits for the first, and says so.
func renewCommand(ctx context.Context, args []string, s streams) error {
	var f certsFlags
	if done, err := f.parse("renew", certsPatience, args, s); done || err != nil {
		return err
	}
	if err := f.open(ctx); err != nil {
		return fail(s, "renew", err)
	}
	minted, err := f.mint(ctx, s)
	out := renewed{Minted: minted}
	if f.roles.Has(role.Minions) {
		got, bootErr := f.bootstrap(ctx, s)
		switch {
		case bootErr == nil:
			out.Bootstrap = &got
		case reason.Of(bootErr) == reason.Token:
			logger(s.err, f.verbose).WarnContext(ctx, "no new bootstrap token", "reason", bootErr)
		default:
			err = errors.Join(err, bootErr)
		}
	}
	if err != nil {
		return fail(s, "renew", err)
	}
	systemd.Status(mintedStatus(minted))
	return out.show(s.out, f.asJSON)
}

func (r renewed) show(w io.Writer, asJSON bool) error {
	if asJSON {
		enc := json.NewEncoder(w)
		enc.SetIndent("", "  ")
		return enc.Encode(r)
	}
	if err := showMinted(w, r.Minted, false); err != nil || r.Bootstrap == nil {
		return err
	}
	return showBootstrapped(w, *r.Bootstrap, false)
}
