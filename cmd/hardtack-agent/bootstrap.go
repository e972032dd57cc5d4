package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/node/certs"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/reason"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/systemd"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/timeline"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// bootstrapCommand is hardtack-agent bootstrap.
func bootstrapCommand(ctx context.Context, args []string, s streams) error {
	var f certsFlags
	if done, err := f.parse("bootstrap", certs.Forever, args, s); done || err != nil {
		return err
	}
	var got certs.Bootstrapped
	err := unitRun(ctx, s, "bootstrap", timeline.PhaseCerts, func(ctx context.Context) (err error) {
		if err := f.open(ctx, s); err != nil {
			return err
		}
		got, err = f.bootstrap(ctx, s)
		return err
	})
	if err != nil {
		return err
	}
	systemd.Status("bootstrap token " + got.Token + ", good until " + got.Expires.UTC().Format(time.RFC3339))
	return showBootstrapped(s.out, got, f.asJSON)
}

func (f *certsFlags) bootstrap(ctx context.Context, s streams) (certs.Bootstrapped, error) {
	return certs.Bootstrap(ctx, certs.BootstrapOptions{
		Root: f.root, Config: f.effective, Store: f.store, Now: time.Now,
		Patience: f.patience, Status: systemd.Status, Log: logger(s.err, f.verbose),
	})
}

func showBootstrapped(w io.Writer, b certs.Bootstrapped, asJSON bool) error {
	if asJSON {
		return printJSON(w, b)
	}
	_, err := fmt.Fprintf(w, "server %s\nauthority %s\ntoken %s, good until %s\n", b.Server, b.Authority, b.Token, b.Expires.UTC().Format(time.RFC3339))
	return err
}

// renewed is the output of hardtack-agent renew.
type renewed struct {
	Minted    []certs.Minted      `json:"minted"`
	Bootstrap *certs.Bootstrapped `json:"bootstrap,omitempty"`
}

// renewCommand is hardtack-agent renew: it renews the certificates of every role of the machine that are due, and
// fetches the newest bootstrap token on a minion. A missing token is not an error: hardtack-bootstrap.service waits
// for the first one, and reports that.
func renewCommand(ctx context.Context, args []string, s streams) error {
	var f certsFlags
	if done, err := f.parse("renew", certsPatience, args, s); done || err != nil {
		return err
	}
	if err := f.open(ctx, s); err != nil {
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
	reportWorking(s, noPhase, readerUnit)
	systemd.Status(mintedStatus(minted))
	return out.show(s.out, f.asJSON)
}

func (r renewed) show(w io.Writer, asJSON bool) error {
	if asJSON {
		return printJSON(w, r)
	}
	if err := showMinted(w, r.Minted, false); err != nil || r.Bootstrap == nil {
		return err
	}
	return showBootstrapped(w, *r.Bootstrap, false)
}
