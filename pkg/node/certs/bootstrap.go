package certs

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/node/config"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/reason"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki"
)

// NodeIdentity is the node's certificate and key, which the kubelet renews by itself; kube-proxy and flanneld use it too,
// so that a node has one identity and one secret. The kubelet wants a link to a file with a date there.
const NodeIdentity = "/var/lib/kubelet/pki/kubelet-client-current.pem"

// BootstrapOptions are the options of Bootstrap.
type BootstrapOptions struct {
	// Root is the root directory of the machine; "" is "/".
	Root   string
	Config config.Effective
	Store  Secrets
	Now    func() time.Time
	// Node returns the node's name; an error that matches fs.ErrNotExist may pass.
	Node func() (string, error)
	// Reach waits for an API server; Join returns a client of it with a bootstrap token. Prove returns the proof of the
	// machine's identity for a certificate request in DER; it is nil where there is no cloud that knows the machine.
	Reach func(ctx context.Context) error
	Join  func(server string, ca []byte, token string) (Joiner, error)
	Prove func(ctx context.Context, request []byte) (string, error)
	// Patience bounds each wait: for the name, the API server, and the certificate. 0 tries once, and Forever waits without
	// limit.
	Patience time.Duration
	// AloneAfter is after which time the kubelet of a node that has to join again starts without a certificate of the
	// cluster; 0 is never.
	AloneAfter time.Duration
	// Status receives texts about what is missing; may be nil.
	Status func(string)
	// Log may be nil.
	Log *slog.Logger
}

// Forever is a patience without limit.
const Forever = time.Duration(1<<63 - 1)

// Bootstrapped is the result of Bootstrap.
type Bootstrapped struct {
	Server string `json:"server"`
	// Node is the node's name, and Expires the end of its certificate.
	Node    string    `json:"node"`
	Expires time.Time `json:"expires"`
	// Joined: the certificate is new.
	Joined bool `json:"joined"`
	// Authority is the SHA-256 of the authority that the machine trusts; of two, while it is being replaced, separated by a
	// comma.
	Authority string `json:"authority"`
	// Changed lists the directories that were written.
	Changed []string `json:"changed"`
}

// Bootstrap writes the files that the minion's daemons start with, and gets the node its certificate, unless the machine
// has a good one. The machine trusts the authority of its user data, or the one that Learn has read from the store.
func Bootstrap(ctx context.Context, o BootstrapOptions) (Bootstrapped, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	files := bundles{root: o.Root}
	if err := files.check(); err != nil {
		return Bootstrapped{}, err
	}
	trusted, err := readTrusted(o.Root, o.Config.CA())
	if err != nil {
		return Bootstrapped{}, err
	}
	w := newWaiter(o.Patience, yields(o.Config.Roles), o.Status, o.Log)
	if err := w.retry(ctx, func() error { return clockReason(pki.CheckAny(trusted, o.Now())) }); err != nil {
		return Bootstrapped{}, err
	}
	out := Bootstrapped{
		Server:    o.Config.APIServer(o.Config.Roles),
		Authority: pki.Fingerprints(trusted), Changed: []string{},
	}
	ca := pki.EncodeCertificates(trusted)
	for _, b := range nodeBundles(out.Server, ca) {
		minted, err := files.renew(b, o.Now())
		if err != nil {
			return out, err
		}
		if minted.Action == actionMinted {
			out.Changed = append(out.Changed, minted.Dir)
		}
	}
	if out.Node, err = o.name(ctx, w); err != nil {
		return out, err
	}
	cert := o.identity(out.Node, trusted)
	if cert == nil {
		stop := o.alone(out.Server, out.Node)
		cert, err = o.turn(ctx, w, func() (*x509.Certificate, error) {
			if cert := o.identity(out.Node, trusted); cert != nil {
				return cert, nil
			}
			out.Joined = true
			return o.join(ctx, w, out.Server, ca, out.Node)
		})
		stop()
		if err != nil {
			return out, err
		}
	}
	out.Expires = cert.NotAfter
	return out, o.endAlone()
}

// name waits for the node's name, which hardtack-node.service decides.
func (o BootstrapOptions) name(ctx context.Context, w *waiter) (name string, err error) {
	err = w.retry(ctx, func() error {
		if name, err = o.Node(); errors.Is(err, fs.ErrNotExist) {
			return temporaryError{reason.Errorf(reason.File, "the node has no name yet: %w", err)}
		}
		return reason.With(reason.File, err)
	})
	return name, err
}

// readToken reads a token that is good. Whatever is wrong with it may pass: the masters make it, and replace it, and
// rights and endpoints are often given a little later than the machines that need them.
func readToken(ctx context.Context, store Secrets, now time.Time) (pki.Token, error) {
	data, err := store.Get(ctx, pki.BootstrapToken)
	if errors.Is(err, pki.ErrNotFound) {
		return pki.Token{}, temporaryError{reason.With(reason.Token, err)}
	}
	if err != nil {
		return pki.Token{}, temporaryError{classified(err, store)}
	}
	token, err := pki.ParseToken(data)
	if err != nil {
		return pki.Token{}, temporaryError{&reason.Error{Reason: reason.Token, Next: "delete it, and a running master makes another",
			Err: fmt.Errorf("%s of %s: %w", pki.BootstrapToken, store, err)}}
	}
	if token.Expired(now) {
		return pki.Token{}, temporaryError{&reason.Error{
			Reason: reason.Token, Next: "a running master replaces it: look at the masters' consoles, and at this machine's clock",
			Err: fmt.Errorf("the bootstrap token %s of %s expired at %s, and the clock says %s", token, store,
				token.Expires.UTC().Format(time.RFC3339), now.UTC().Format(time.RFC3339)),
		}}
	}
	return token, nil
}

// nodeBundles are the files of the minions' daemons, which all show the node's certificate.
func nodeBundles(server string, authority []byte) []pki.Bundle {
	// Each daemon has its own copy of the authority, so that each is started again when that changes.
	bundle := func(dir string) pki.Bundle {
		b := pki.Bundle{Dir: dir, AtStart: []string{"ca.crt"}}
		b.Files = []pki.File{{Name: "ca.crt", Content: authority}, {Name: "kubeconfig", Content: pki.Kubeconfig{
			Server: server, CAFile: b.Path("ca.crt"), User: "node", CertificateFile: NodeIdentity, KeyFile: NodeIdentity,
		}.Render()}}
		return b
	}
	// It reads its authority for each connection, and a restart would end what goes through its tunnels.
	tunnel := bundle(pki.DirTunnelAgent)
	tunnel.AtStart = nil
	return []pki.Bundle{bundle(pki.DirKubelet), bundle(pki.DirProxy), bundle(pki.DirFlannel), tunnel}
}
