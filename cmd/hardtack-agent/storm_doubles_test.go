package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/big"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/node/certs"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/controller"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki"
)

// wire is the network to AWS: it counts.
type wire struct {
	handler http.Handler
	mu      sync.Mutex
	calls   map[string]int
	refused map[string]int
}

func (w *wire) RoundTrip(r *http.Request) (_ *http.Response, err error) {
	time.Sleep(stormLatency)
	defer func() {
		if recover() != nil { // http.ErrAbortHandler: the caller has gone
			err = errors.Join(r.Context().Err(), errors.New("connection reset by peer"))
		}
	}()
	in := r.Clone(r.Context())
	if in.Body == nil {
		in.Body = http.NoBody
	}
	if in.Host == "" {
		in.Host = in.URL.Host
	}
	in.RequestURI = in.URL.RequestURI()
	body, err := io.ReadAll(in.Body)
	if err != nil {
		return nil, err
	}
	in.Body = io.NopCloser(bytes.NewReader(body))
	recorder := httptest.NewRecorder()
	w.handler.ServeHTTP(recorder, in)
	w.count(in, string(body), recorder.Body.String())
	out := recorder.Result()
	out.Request = r
	return out, nil
}

// count counts a call by its action, and whether it was refused because of the rate.
func (w *wire) count(r *http.Request, body, answer string) {
	action := strings.TrimPrefix(r.Header.Get("X-Amz-Target"), "AmazonSSM.")
	for _, form := range []string{body, r.URL.RawQuery} {
		if values, err := url.ParseQuery(form); err == nil && action == "" {
			action = values.Get("Action")
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.calls[action]++
	if strings.Contains(answer, "Throttling") || strings.Contains(answer, "RequestLimitExceeded") {
		w.refused[action]++
	}
}

// take returns the counts since the last call.
func (w *wire) take() (calls, refused map[string]int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	calls, refused = w.calls, w.refused
	w.calls, w.refused = map[string]int{}, map[string]int{}
	return calls, refused
}

// apiServers are the masters' API servers, as controllers and machines see them.
type apiServers struct {
	mu       sync.Mutex
	nodes    map[string]controller.Node
	requests map[string]controller.Request
	signed   map[string][]byte
	objects  map[string]bool
	masters  []netip.Addr
	ca       pki.Authority
	came     map[chan struct{}]bool
	up       bool
	storm    *stormed
}

func (a *apiServers) Nodes(context.Context) ([]controller.Node, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Collect(maps.Values(a.nodes)), nil
}

func (a *apiServers) Label(_ context.Context, node string, labels map[string]string) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	n := a.nodes[node]
	n.Labels = maps.Clone(labels)
	a.nodes[node] = n
	return nil
}

func (a *apiServers) Remove(_ context.Context, n controller.Node) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.nodes, n.Name)
	return nil
}

func (a *apiServers) Tell(context.Context, controller.Node, controller.Answer) error { return nil }

func (a *apiServers) Masters(context.Context) ([]netip.Addr, error) { return a.masters, nil }

func (a *apiServers) Requests(context.Context) ([]controller.Request, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Collect(maps.Values(a.requests)), nil
}

func (a *apiServers) Approve(_ context.Context, name, _ string) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	r, ok := a.requests[name]
	if !ok {
		return nil
	}
	delete(a.requests, name)
	block, _ := pem.Decode(r.PEM)
	asked, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return err
	}
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{SerialNumber: big.NewInt(1), Subject: asked.Subject,
		NotBefore: time.Now().Add(-time.Minute), NotAfter: time.Now().Add(24 * time.Hour)}, a.ca.Certificate, asked.PublicKey, a.ca.Key)
	a.signed[name] = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	return err
}

func (a *apiServers) Undecided(context.Context, string, string) error { return nil }

func (a *apiServers) Watch(ctx context.Context, came func()) error {
	events := make(chan struct{}, 1)
	a.mu.Lock()
	a.came[events] = true
	a.mu.Unlock()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-events:
			came()
		}
	}
}

func (a *apiServers) Apply(_ context.Context, object map[string]any) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.objects[object["metadata"].(map[string]any)["name"].(string)] = true
	return nil
}

func (a *apiServers) Tokens(context.Context) ([]controller.MachineToken, error) { return nil, nil }
func (a *apiServers) Use(context.Context, controller.MachineToken) error        { return nil }

// Probe answers as /readyz does.
func (a *apiServers) Probe(context.Context, *url.URL, netip.AddrPort) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.up {
		return errors.New("connection refused")
	}
	return nil
}

// LookupNetIP is the VPC's resolver.
func (s *stormed) LookupNetIP(context.Context, string, string) ([]netip.Addr, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.announce) == 0 {
		return []netip.Addr{netip.MustParseAddr("192.0.2.1")}, nil // the function's placeholder
	}
	return s.announce, nil
}

// stormJoiner is a machine that asks for its certificate.
type stormJoiner struct {
	*apiServers
	token string
}

func (j stormJoiner) Ask(_ context.Context, r certs.JoinRequest) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	id, _, _ := strings.Cut(j.token, ".")
	if !j.objects["bootstrap-token-"+id] {
		return certs.ErrTokenRefused
	}
	j.requests[r.Name] = controller.Request{Name: r.Name, UID: r.Name, Signer: controller.SignerClient, Proof: r.Proof, PEM: r.PEM,
		User: "system:bootstrap:" + id, Groups: []string{"system:bootstrappers", pki.GroupBootstrappers, "system:authenticated"},
		Usages: []string{"digital signature", "client auth"}}
	for c := range j.came {
		select {
		case c <- struct{}{}:
		default:
		}
	}
	return nil
}

func (j stormJoiner) Answer(_ context.Context, name string) (certs.JoinAnswer, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	crt := j.signed[name]
	return certs.JoinAnswer{Certificate: crt, Approved: crt != nil}, nil
}

// Verify asks STS with the proof, as identity.Verifier does over sockets.
func (s *stormed) Verify(ctx context.Context, proof string, request []byte) (controller.Caller, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, proof, nil)
	if err != nil {
		return controller.Caller{}, err
	}
	sum := sha256.Sum256(request)
	r.Header.Set("x-hardtack-cluster", s.info.Cluster)
	r.Header.Set("x-hardtack-csr", hex.EncodeToString(sum[:]))
	answer, err := s.wire.RoundTrip(r)
	if err != nil {
		return controller.Caller{}, err
	}
	defer func() { _ = answer.Body.Close() }()
	var found struct {
		Arn string `xml:"GetCallerIdentityResult>Arn"`
	}
	if err := xml.NewDecoder(answer.Body).Decode(&found); err != nil {
		return controller.Caller{}, err
	}
	parts := strings.Split(found.Arn, "/")
	if len(parts) != 3 {
		return controller.Caller{}, fmt.Errorf("STS refuses: %d", answer.StatusCode)
	}
	return controller.Caller{Instance: parts[2], Role: parts[1]}, nil
}

// join registers a node, which is Ready a little later.
func (a *apiServers) join(name, id string, at netip.Addr) {
	n := controller.Node{Name: name, UID: id, Instance: id, Addresses: []netip.Addr{at}}
	set := func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		n.Labels = a.nodes[name].Labels
		a.nodes[name] = n
	}
	set()
	time.Sleep(stormJoined)
	n.Ready = true
	set()
}
