package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"slices"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/awsconfig"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/boot"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/certs"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/command"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/identity"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/kube"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/kubelet"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/reason"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/systemd"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/timeline"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/wait"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// bootstrapCommand is hardtack-agent bootstrap.
func bootstrapCommand(ctx context.Context, args []string, s command.Streams) error {
	var f certsFlags
	if done, err := f.parse("bootstrap", certs.Forever, args, s); done || err != nil {
		return err
	}
	var got certs.Bootstrapped
	err := unitRun(ctx, s, "bootstrap", timeline.PhaseCerts, func(ctx context.Context) (err error) {
		if err := f.open(ctx, s); err != nil {
			return err
		}
		if got, err = f.bootstrap(ctx, s, certs.AloneAfter); err != nil {
			return err
		}
		return f.restart(ctx, s, pki.DirKubelet) // if it was alone
	})
	if err != nil {
		return err
	}
	systemd.Status("the certificate of node " + got.Node + " is good until " + got.Expires.UTC().Format(time.RFC3339))
	return showBootstrapped(s.Out, got, f.asJSON)
}

func (f *certsFlags) bootstrap(ctx context.Context, s command.Streams, aloneAfter time.Duration) (certs.Bootstrapped, error) {
	o := certs.BootstrapOptions{
		Root: f.root, Config: f.effective, Store: f.secrets, Now: time.Now,
		Node:  func() (string, error) { return kubelet.NodeName(f.root) },
		Reach: func(ctx context.Context) error { return f.reach(ctx, s) },
		Join: func(server string, ca []byte, token string) (certs.Joiner, error) {
			return kube.NewJoiner(server, ca, token)
		},

		Patience: f.patience, AloneAfter: aloneAfter, Status: systemd.Status, Log: s.Logger(f.verbose),
	}
	if hardware := boot.ReadFacts(f.root); hardware.Metadata {
		endpoint, err := systemd.Credential(awsEndpoint)
		if err != nil {
			return certs.Bootstrapped{}, err
		}
		o.Prove = func(ctx context.Context, request []byte) (string, error) {
			c, err := awsconfig.Machine{Endpoint: endpoint, Metadata: hardware.Endpoint}.Load(ctx)
			if err != nil {
				return "", err
			}
			return identity.Prove(ctx, c, f.effective.Cluster, request, time.Now())
		}
	}
	return certs.Bootstrap(ctx, o)
}

// reach waits for an API server, as hardtack-agent wait --api does.
func (f *certsFlags) reach(ctx context.Context, s command.Streams) error {
	if f.patience != certs.Forever {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, f.patience, fmt.Errorf("gave up after %v", f.patience))
		defer cancel()
	}
	w := waitFlags{api: true, root: f.root, verbose: f.verbose}
	return w.run(ctx, nil, s)
}

// announced waits until the masters have an address in DNS. Only who waits without limit does: the others want to know what
// the store says.
func (f *certsFlags) announced(s command.Streams) func(context.Context) error {
	if f.verb != "bootstrap" || f.patience != certs.Forever || f.roles.Has(role.Masters) {
		return nil
	}
	return func(ctx context.Context) error {
		target, err := url.Parse(f.effective.APIServer(f.roles))
		if err != nil {
			return reason.With(reason.Config, err)
		}
		return wait.Run(ctx, wait.Options{Targets: []*url.URL{target}, Resolver: &net.Resolver{PreferGo: true}, Prober: wait.Announced{},
			Status: systemd.Status, Log: s.Logger(f.verbose)})
	}
}

func showBootstrapped(w io.Writer, b certs.Bootstrapped, asJSON bool) error {
	if asJSON {
		return printJSON(w, b)
	}
	joined := "kept"
	if b.Joined {
		joined = "joined"
	}
	_, err := fmt.Fprintf(w, "server %s\nauthority %s\nnode %s, %s, certificate good until %s\n", b.Server, b.Authority, b.Node, joined, b.Expires.UTC().Format(time.RFC3339))
	return err
}

// renewed is the output of hardtack-agent renew.
type renewed struct {
	Minted    []certs.Minted      `json:"minted"`
	Bootstrap *certs.Bootstrapped `json:"bootstrap,omitempty"`
}

// joining are the reasons for which a machine has not joined yet.
var joining = []reason.Reason{reason.File, reason.Token, reason.Identity, reason.DNS, reason.Unreachable, reason.NotReady}

// renewCommand is hardtack-agent renew: it renews the certificates of every role of the machine that are due. On a
// minion whose own certificate has expired it asks for another, as hardtack-agent bootstrap does; the kubelet renews one
// that is good. What a machine waits for that joins is not an error: hardtack-bootstrap.service waits for it too, and
// reports that. At last it starts daemons again that read only at their start what was replaced, and a kubelet whose node the
// API server has lost.
func renewCommand(ctx context.Context, args []string, s command.Streams) error {
	var f certsFlags
	if done, err := f.parse("renew", certsPatience, args, s); done || err != nil {
		return err
	}
	if err := f.open(ctx, s); err != nil {
		return s.Fail("hardtack-agent renew", err)
	}
	minted, err := f.mint(ctx, s)
	out := renewed{Minted: minted}
	if f.roles.Has(role.Minions) {
		got, bootErr := f.bootstrap(ctx, s, 0)
		switch {
		case bootErr == nil:
			out.Bootstrap = &got
			if lostErr := f.noteLost(ctx, s, got.Node); lostErr != nil { // the next hour asks again
				s.Logger(f.verbose).WarnContext(ctx, "whether the API server still has this machine's node is not known", "error", lostErr)
			}
		case slices.Contains(joining, reason.Of(bootErr)):
			s.Logger(f.verbose).WarnContext(ctx, "the node has no certificate yet", "reason", bootErr)
		default:
			err = errors.Join(err, bootErr)
		}
	}
	if err = errors.Join(err, f.restart(ctx, s, "")); err != nil {
		return s.Fail("hardtack-agent renew", err)
	}
	s.Works(command.NoPhase, command.ReaderUnit)
	systemd.Status(mintedStatus(minted))
	return out.show(s.Out, f.asJSON)
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
