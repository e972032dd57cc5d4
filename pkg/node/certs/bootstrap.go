package certs

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/node/config"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/reason"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// NodeIdentity is the kubelet's certificate and key, which it renews by itself; kube-proxy and flanneld use it too,
// so that a node has one identity and one secret.
const NodeIdentity = "/var/lib/kubelet/pki/kubelet-client-current.pem"

// BootstrapOptions are the options of Bootstrap.
type BootstrapOptions struct {
	// Root is the root directory of the machine; "" is "/".
	Root   string
	Config config.Effective
	Store  Secrets
	Now    func() time.Time
	// Patience bounds the wait for the token; 0 tries once, and Forever waits without limit.
	Patience time.Duration
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
	// Token is without its secret.
	Token   string    `json:"token"`
	Expires time.Time `json:"expires"`
	// Authority is the SHA-256 of the authority that the machine trusts; of two, while it is being replaced, separated by a
	// comma.
	Authority string `json:"authority"`
	// Changed lists the directories that were written.
	Changed []string `json:"changed"`
}

// Bootstrap waits for the cluster's bootstrap token and writes the files that the minion's daemons start with. The
// machine trusts the authority of its user data, or the one that Learn has read from the store.
func Bootstrap(ctx context.Context, o BootstrapOptions) (Bootstrapped, error) {
	files := bundles{root: o.Root}
	if err := files.check(); err != nil {
		return Bootstrapped{}, err
	}
	trusted, err := readTrusted(o.Root, o.Config.CA())
	if err != nil {
		return Bootstrapped{}, err
	}
	w := newWaiter(o.Patience, o.Status, o.Log)
	if err := w.retry(ctx, func() error { return clockReason(pki.CheckAny(trusted, o.Now())) }); err != nil {
		return Bootstrapped{}, err
	}
	var token pki.Token
	err = w.retry(ctx, func() (err error) {
		token, err = readToken(ctx, o.Store, o.Now())
		return err
	})
	if err != nil {
		return Bootstrapped{}, err
	}
	out := Bootstrapped{
		Server: fmt.Sprintf("https://%s:%d", role.Masters.Host(o.Config.Cluster), o.Config.API.Port),
		Token:  token.String(), Expires: token.Expires, Authority: pki.Fingerprints(trusted), Changed: []string{},
	}
	for _, b := range nodeBundles(out.Server, pki.EncodeCertificates(trusted), token) {
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
