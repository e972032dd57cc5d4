package certs

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/file"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/reason"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki"
)

// The identity of a kubelet, as the API server's Node authorizer defines it.
const (
	nodeUser  = "system:node:"
	nodeGroup = "system:nodes"
)

// askAgain is how long a machine waits for the answer to one request. The proof in it is good for as long
// (pkg/node/identity): a master that looks later needs another one.
const askAgain = 5 * time.Minute

// ErrTokenRefused means that the API server does not accept the bootstrap token.
var ErrTokenRefused = errors.New("the API server does not accept the bootstrap token")

// JoinRequest asks for a node's first certificate.
type JoinRequest struct {
	// Name is made of the request's digest, so that a request that is sent twice is one.
	Name string
	PEM  []byte
	// Proof is the proof of the machine's identity; "" if there is none.
	Proof string
}

// JoinAnswer is what has become of a request: everything is empty while it is pending.
type JoinAnswer struct {
	// Certificate is PEM.
	Certificate []byte
	Approved    bool
	// Why is the reason why the masters leave the request undecided, as far as they have said.
	Why string
	// Over says why the request will never have a certificate.
	Over string
}

// Joiner is an API server, asked with a bootstrap token. Errors may pass, and match ErrTokenRefused where the
// token is the cause.
type Joiner interface {
	// Ask creates a request. One that exists already is not an error.
	Ask(ctx context.Context, r JoinRequest) error
	Answer(ctx context.Context, name string) (JoinAnswer, error)
}

// identity returns the certificate that the machine has already; nil if there is none that is good for this node, and that
// an authority of the cluster has signed: API servers trust no other.
func (o BootstrapOptions) identity(node string, trusted []*x509.Certificate) *x509.Certificate {
	name := filepath.Join("/", o.Root, NodeIdentity)
	pair, err := tls.LoadX509KeyPair(name, name)
	if err != nil {
		return nil
	}
	if now := o.Now(); pair.Leaf.Subject.CommonName != nodeUser+node || now.Before(pair.Leaf.NotBefore) || now.After(pair.Leaf.NotAfter) {
		return nil
	}
	if !slices.ContainsFunc(trusted, func(c *x509.Certificate) bool { return pair.Leaf.CheckSignatureFrom(c) == nil }) {
		return nil
	}
	return pair.Leaf
}

// turn calls join while no other process of the machine does: a clock that is set right starts hardtack-renew.service while
// hardtack-bootstrap.service waits, and each would ask for a certificate. It makes the certificate's directory, which is a link to
// one on a tmpfs by the image's tmpfiles.d; the kubelet's state directory does not exist on a test's root.
func (o BootstrapOptions) turn(ctx context.Context, w *waiter, join func() (*x509.Certificate, error)) (*x509.Certificate, error) {
	dir := filepath.Dir(filepath.Join("/", o.Root, NodeIdentity))
	if err := os.MkdirAll(dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return nil, fmt.Errorf("making the directory of the node's certificate: %w", err)
	}
	f, err := os.Open(dir)
	if err != nil {
		return nil, fmt.Errorf("opening the directory of the node's certificate: %w", err)
	}
	defer f.Close()
	err = w.retry(ctx, func() error {
		err := file.TryLock(f)
		if errors.Is(err, file.ErrLocked) {
			return temporaryError{reason.Errorf(reason.Identity, "another process of this machine is asking for the node's certificate")}
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return join()
}

// attempt is one request, the key of its certificate, and the server that has it.
type attempt struct {
	JoinRequest
	key   []byte
	made  time.Time
	api   Joiner
	asked bool
}

// join gets the node its first certificate. A lost answer costs nothing: the request stays the same. If it has no
// certificate when its proof expires, another one follows, with another key.
func (o BootstrapOptions) join(ctx context.Context, w *waiter, server string, ca []byte, node string) (*x509.Certificate, error) {
	// A token for this machine comes first. Once the API server refuses it, since it is used or has expired, the next request
	// is made with the cluster's, and the one after that tries it again: an API server that has just started knows no tokens.
	var token pki.Token
	own, refused := o.ownToken(), false
	read := func() (err error) {
		if own.ID != "" && !refused && !own.Expired(o.Now()) {
			token = own
			return nil
		}
		token, err = readToken(ctx, o.Store, o.Now())
		return err
	}
	// Before the first master works there is no token: who waits for its API server leaves the store to it.
	if err := o.Reach(ctx); err != nil {
		return nil, err
	}
	if err := w.retry(ctx, read); err != nil {
		return nil, err
	}
	var a *attempt
	var certificate []byte
	err := w.retry(ctx, func() (err error) {
		if token.Expired(o.Now()) {
			if err := read(); err != nil {
				return err
			}
		}
		if a == nil || o.Now().Sub(a.made) > askAgain {
			if a != nil && own.ID != "" {
				refused = false
				if err := read(); err != nil {
					return err
				}
			}
			if a, err = o.attempt(ctx, server, ca, token, node); err != nil {
				return err
			}
		}
		certificate, err = a.certificate(ctx)
		if errors.Is(err, errOver) {
			a = nil
		}
		if errors.Is(err, ErrTokenRefused) {
			refused = token == own
			token = pki.Token{}
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return o.keep(certificate, a.key)
}

// ownToken returns the token for this machine alone, from its user data; the zero value if it has none.
func (o BootstrapOptions) ownToken() pki.Token {
	data, err := os.ReadFile(filepath.Join("/", o.Root, pki.MachineTokenPath))
	if errors.Is(err, os.ErrNotExist) {
		return pki.Token{}
	}
	var token pki.Token
	if err == nil {
		token, err = pki.ParseToken(data)
	}
	if err != nil {
		o.Log.Warn("the machine's own bootstrap token is not used", "file", pki.MachineTokenPath, "error", err)
	}
	return token
}

// attempt makes a key and a request, and the proof for it.
func (o BootstrapOptions) attempt(ctx context.Context, server string, ca []byte, token pki.Token, node string) (*attempt, error) {
	api, err := o.Join(server, ca, token.Bearer())
	if err != nil {
		return nil, err
	}
	a := &attempt{made: o.Now(), api: api}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("making the node's key: %w", err)
	}
	private, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("encoding the node's key: %w", err)
	}
	request, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{
		Subject: pkix.Name{CommonName: nodeUser + node, Organization: []string{nodeGroup}},
	}, key)
	if err != nil {
		return nil, fmt.Errorf("making the node's certificate request: %w", err)
	}
	sum := sha256.Sum256(request)
	a.Name = "hardtack-" + hex.EncodeToString(sum[:16])
	a.key = pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: private})
	a.PEM = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: request})
	if o.Prove != nil {
		if a.Proof, err = o.Prove(ctx, request); err != nil {
			return nil, temporaryError{reason.With(reason.Metadata, fmt.Errorf("proving which machine this is: %w", err))}
		}
	}
	return a, nil
}

// errOver is of a request that will have no certificate.
var errOver = errors.New("the certificate request has ended")

// certificate asks for the certificate, once.
func (a *attempt) certificate(ctx context.Context) ([]byte, error) {
	if !a.asked {
		if err := a.api.Ask(ctx, a.JoinRequest); err != nil {
			return nil, a.failed(err)
		}
		a.asked = true
	}
	answer, err := a.api.Answer(ctx, a.Name)
	switch {
	case err != nil:
		return nil, a.failed(err)
	case len(answer.Certificate) > 0:
		return answer.Certificate, nil
	case answer.Over != "":
		return nil, temporaryError{reason.Errorf(reason.Identity, "%w: %s: %s", errOver, a.Name, answer.Over)}
	case answer.Approved:
		return nil, temporaryError{reason.Errorf(reason.Identity, "certificate request %s is approved, and kube-controller-manager has not signed it yet", a.Name)}
	case answer.Why != "":
		return nil, temporaryError{reason.Errorf(reason.Identity, "the masters leave certificate request %s undecided: %s", a.Name, answer.Why)}
	}
	return nil, temporaryError{reason.Errorf(reason.Identity, "no master has decided about certificate request %s yet", a.Name)}
}

// failed classifies an error of the API server. A token that is not accepted is read anew.
func (a *attempt) failed(err error) error {
	if errors.Is(err, ErrTokenRefused) {
		return temporaryError{reason.With(reason.Token, fmt.Errorf("%w: %w", errOver, err))}
	}
	return temporaryError{reason.With(reason.NotReady, err)}
}

// keep writes certificate and key as the kubelet keeps them: a file with a date, and a link to it. turn has made their directory.
func (o BootstrapOptions) keep(certificate, key []byte) (*x509.Certificate, error) {
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		return nil, reason.Errorf(reason.Identity, "the API server's certificate is not for the node's key: %w", err)
	}
	link := filepath.Join("/", o.Root, NodeIdentity)
	name := "kubelet-client-" + o.Now().UTC().Format("2006-01-02-15-04-05") + ".pem"
	if _, err := file.Replace(filepath.Join(filepath.Dir(link), name), bytes.Join([][]byte{certificate, key}, nil), 0o600); err != nil {
		return nil, fmt.Errorf("writing the node's certificate: %w", err)
	}
	if err := symlink(name, link); err != nil {
		return nil, fmt.Errorf("writing the node's certificate: %w", err)
	}
	return pair.Leaf, nil
}
