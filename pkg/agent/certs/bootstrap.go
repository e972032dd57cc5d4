package certs

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/agent/reason"
	"github.com/hardtack/packer-plugin-hardtack/pkg/machine"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// NodeIdentity is the kubelet's certificate and key, which it renews by itself: what kube-proxy and flanneld show too,
// so that a node has one identity and one secret.
const NodeIdentity = "/var/lib/kubelet/pki/kubelet-client-current.pem"

// BootstrapOptions say how a minion gets to know its cluster.
type BootstrapOptions struct {
	// Root is the root directory of the machine; "" is "/".
	Root   string
	Config machine.Config
	Store  Secrets
	Now    func() time.Time
	// Patience bounds the wait for the token; 0 asks once, and Forever waits as long as it takes.
	Patience time.Duration
	// Status gets what is waited for, for people; nil discards it.
	Status func(string)
	// Log gets the story; nil discards it.
	Log *slog.Logger
}

// Forever is the patience of what has nothing better to do.
const Forever = time.Duration(1<<63 - 1)

// Bootstrapped is what a minion was given.
type Bootstrapped struct {
	Server string `json:"server"`
	// Token is without its secret.
	Token   string    `json:"token"`
	Expires time.Time `json:"expires"`
	// Authority is the SHA-256 of the authority that the machine trusts.
	Authority string `json:"authority"`
	// Changed lists the directories that were written.
	Changed []string `json:"changed"`
}

// Bootstrap waits for the cluster's bootstrap token and writes what the minions' daemons start with. What a machine
// trusts is the authority of its user data and nothing else: what the store says of it is not asked.
func Bootstrap(ctx context.Context, o BootstrapOptions) (Bootstrapped, error) {
	files := bundles{root: o.Root}
	if err := files.check(); err != nil {
		return Bootstrapped{}, err
	}
	authority, err := readAuthority(o.Root)
	if err != nil {
		return Bootstrapped{}, err
	}
	w := newWaiter(o.Patience, o.Status, o.Log)
	if err := w.until(ctx, func() error { return timely(pki.Check(authority, o.Now())) }); err != nil {
		return Bootstrapped{}, err
	}
	var token pki.Token
	err = w.until(ctx, func() (err error) {
		token, err = readToken(ctx, o.Store, o.Now())
		return err
	})
	if err != nil {
		return Bootstrapped{}, err
	}
	out := Bootstrapped{
		Server: fmt.Sprintf("https://%s.%s:%d", role.Masters, o.Config.Domain(), o.Config.API.Port),
		Token:  token.String(), Expires: token.Expires, Authority: pki.Fingerprint(authority), Changed: []string{},
	}
	for _, b := range nodeBundles(out.Server, pki.EncodeCertificate(authority), token) {
		minted, err := files.renew(b, o.Now())
		if err != nil {
			return out, err
		}
		if minted.Action == actionMinted {
			out.Changed = append(out.Changed, minted.Dir)
		}
	}
	return out, nil
}

// readToken reads a token that is good. Whatever is wrong with it may pass: the masters make it, and replace it, and
// rights and endpoints are often given a little later than the machines that need them.
func readToken(ctx context.Context, store Secrets, now time.Time) (pki.Token, error) {
	data, err := store.Get(ctx, pki.BootstrapToken)
	if errors.Is(err, pki.ErrNotFound) {
		return pki.Token{}, passing{reason.With(reason.Token, err)}
	}
	if err != nil {
		return pki.Token{}, passing{explained(err, store)}
	}
	token, err := pki.ParseToken(data)
	if err != nil {
		return pki.Token{}, passing{&reason.Error{Reason: reason.Token, Next: "delete it, and a running master makes another",
			Err: fmt.Errorf("%s of %s: %w", pki.BootstrapToken, store, err)}}
	}
	if token.Expired(now) {
		return pki.Token{}, passing{&reason.Error{
			Reason: reason.Token, Next: "a running master replaces it: look at the masters' consoles, and at this machine's clock",
			Err: fmt.Errorf("the bootstrap token %s of %s expired at %s, and the clock says %s", token, store,
				token.Expires.UTC().Format(time.RFC3339), now.UTC().Format(time.RFC3339)),
		}}
	}
	return token, nil
}

// nodeBundles are the files of the minions' daemons.
func nodeBundles(server string, authority []byte, token pki.Token) []pki.Bundle {
	kubelet := pki.Bundle{Dir: pki.DirKubelet}
	ca := kubelet.Path("ca.crt")
	kubelet.Files = []pki.File{
		{Name: "ca.crt", Content: authority},
		{Name: "bootstrap-kubeconfig", Content: pki.Kubeconfig{Server: server, CAFile: ca, User: "bootstrap", Token: token.Bearer()}.Render()},
	}
	out := []pki.Bundle{kubelet}
	for _, dir := range []string{pki.DirProxy, pki.DirFlannel} {
		out = append(out, pki.Bundle{Dir: dir, Files: []pki.File{{Name: "kubeconfig", Content: pki.Kubeconfig{
			Server: server, CAFile: ca, User: "node", CertificateFile: NodeIdentity, KeyFile: NodeIdentity,
		}.Render()}}})
	}
	return out
}
