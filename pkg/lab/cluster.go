package lab

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/awsfake"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki/authority"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// adminLife is the lifetime of the host's certificate. A lab is rarely up for longer, and kubectl asks for another.
const adminLife = pki.AdminLife

// watchEvery is the interval at which the nodes are read from the API server.
const watchEvery = 3 * time.Second

// kubernetes is the lab's Kubernetes cluster as its administrator reaches it from this computer.
type kubernetes struct {
	plan    Plan
	host    *host
	secrets authority.Store
	log     *slog.Logger
	// forward is the API server's address on this computer.
	forward string

	mu    sync.Mutex
	nodes []Node
	// authority signs administrators' certificates; nil until the cluster's authorities exist. It is read again a while after
	// readAt, since an operator may replace it.
	authority *pki.Authority
	readAt    time.Time
}

// newKubernetes forwards the API's port.
func newKubernetes(ctx context.Context, plan Plan, machines *host, secrets authority.Store, log *slog.Logger) (*kubernetes, error) {
	c := &kubernetes{plan: plan, host: machines, secrets: secrets, log: log}
	addr, err := machines.runner.Forward(ctx, "127.0.0.1:0", c.master)
	if err != nil {
		return nil, fmt.Errorf("forwarding the API's port: %w", err)
	}
	c.forward = addr.String()
	return c, nil
}

// trust reads the cluster's authority from its store, and keeps it for a minute. An error if it does not exist yet.
func (c *kubernetes) trust(ctx context.Context) ([]byte, pki.Authority, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.authority != nil && time.Since(c.readAt) < time.Minute {
		return pki.EncodeCertificates(c.authority.Trusted()), *c.authority, nil
	}
	crt, err := c.secrets.Get(ctx, pki.KubernetesCA+pki.Crt)
	if err != nil {
		return nil, pki.Authority{}, fmt.Errorf("reading the cluster's authority (hardtack pki create makes it): %w", err)
	}
	key, err := c.secrets.Get(ctx, pki.KubernetesCA+pki.Key)
	if err != nil {
		return nil, pki.Authority{}, fmt.Errorf("reading the cluster's authority (hardtack pki create makes it): %w", err)
	}
	a, err := pki.ParseAuthority(crt, key)
	if err != nil {
		return nil, pki.Authority{}, fmt.Errorf("reading the cluster's authority: %w", err)
	}
	c.authority, c.readAt = &a, time.Now()
	return pki.EncodeCertificates(a.Trusted()), a, nil
}

// errNoMaster means that no connection to an API server can be made.
var errNoMaster = errors.New("no machine with the role masters has power")

// master returns the address of the oldest running master that is in service, else of the oldest running one.
func (c *kubernetes) master(context.Context) (netip.AddrPort, error) {
	var best netip.Addr
	for _, g := range c.host.list() {
		if !g.group.Roles.Has(role.Masters) || g.power() == nil {
			continue
		}
		if c.inService(g) {
			return netip.AddrPortFrom(g.addr, uint16(c.plan.Cluster.API.Port)), nil
		}
		if !best.IsValid() {
			best = g.addr
		}
	}
	if !best.IsValid() {
		return netip.AddrPort{}, errNoMaster
	}
	return netip.AddrPortFrom(best, uint16(c.plan.Cluster.API.Port)), nil
}

// serves reports whether a master is in service, that is, has completed its launch hook because its API server works.
func (c *kubernetes) serves() bool {
	for _, g := range c.host.list() {
		if g.group.Roles.Has(role.Masters) && g.power() != nil && c.inService(g) {
			return true
		}
	}
	return false
}

func (c *kubernetes) inService(g *guest) bool {
	for _, i := range c.host.account.AutoScaling().Instances(g.scaling) {
		if i.ID == g.id {
			return i.State == awsfake.StateInService
		}
	}
	return false
}

// address is the API server's address on this computer.
func (c *kubernetes) address() string { return c.forward }

// serverName is a name in the API server's certificate, independent of the address by which it is reached.
func (c *kubernetes) serverName() string {
	return role.Masters.Host(c.plan.Cluster.Name)
}

// admin issues an administrator's certificate and returns it with the authority's.
func (c *kubernetes) admin(ctx context.Context) ([]byte, pki.Pair, error) {
	ca, a, err := c.trust(ctx)
	if err != nil {
		return nil, pki.Pair{}, err
	}
	pair, err := a.Issue(pki.Profile{Name: "hardtack-lab", Groups: []string{pki.GroupAdmins}, Usage: pki.Client, Life: adminLife}, time.Now())
	return ca, pair, err
}

// kubeconfig renders a kubeconfig for this computer's kubectl.
func (c *kubernetes) kubeconfig(ctx context.Context) ([]byte, error) {
	ca, pair, err := c.admin(ctx)
	if err != nil {
		return nil, fmt.Errorf("making a certificate for kubectl: %w", err)
	}
	return pki.Kubeconfig{Server: "https://" + c.forward, ServerName: c.serverName(), CA: ca, User: "hardtack-lab", Pair: pair}.Render(), nil
}

// client returns an HTTP client that calls the API server as an administrator.
func (c *kubernetes) client(ctx context.Context) (*http.Client, error) {
	ca, pair, err := c.admin(ctx)
	if err != nil {
		return nil, err
	}
	cert, err := tls.X509KeyPair(pair.Certificate, pair.Key)
	if err != nil {
		return nil, fmt.Errorf("reading the administrator's certificate: %w", err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	return &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{TLSClientConfig: &tls.Config{
		MinVersion: tls.VersionTLS12, RootCAs: roots, ServerName: c.serverName(), Certificates: []tls.Certificate{cert},
	}}}, nil
}

// watch reads the nodes at every interval until ctx ends, and calls news when they have changed.
func (c *kubernetes) watch(ctx context.Context, news func()) {
	var client *http.Client
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if !c.serves() {
			continue // an API server that is starting has enough to do
		}
		if client == nil {
			made, err := c.client(ctx)
			if err != nil {
				c.log.Error("the nodes are not watched", "error", err)
				continue
			}
			defer made.CloseIdleConnections()
			client = made
		}
		nodes, err := c.read(ctx, client)
		if err != nil {
			c.log.Debug("the nodes could not be read", "error", err)
			continue // keep the last nodes: the API may be moving to another master
		}
		c.mu.Lock()
		same := fmt.Sprint(c.nodes) == fmt.Sprint(nodes)
		c.nodes = nodes
		c.mu.Unlock()
		if !same {
			news()
		}
	}
}

// lastNodes returns the nodes as they were last read.
func (c *kubernetes) lastNodes() []Node {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]Node{}, c.nodes...)
}

// nodeList holds the fields of the API's NodeList that the lab reads.
type nodeList struct {
	Items []struct {
		Metadata struct {
			Name string `json:"name"`
		} `json:"metadata"`
		Status struct {
			Conditions []struct {
				Type    string `json:"type"`
				Status  string `json:"status"`
				Message string `json:"message"`
			} `json:"conditions"`
		} `json:"status"`
	} `json:"items"`
}

func (c *kubernetes) read(ctx context.Context, client *http.Client) ([]Node, error) {
	var list nodeList
	if err := getJSON(ctx, client, "https://"+c.forward+"/api/v1/nodes", &list); err != nil {
		return nil, fmt.Errorf("asking for the nodes: %w", err)
	}
	nodes := []Node{}
	for _, item := range list.Items {
		n := Node{Name: item.Metadata.Name}
		for _, condition := range item.Status.Conditions {
			if condition.Type == "Ready" {
				n.Ready, n.Why = condition.Status == "True", condition.Message
			}
		}
		if n.Ready {
			n.Why = ""
		}
		nodes = append(nodes, n)
	}
	return nodes, nil
}

// maxAnswer bounds an API server's answer.
const maxAnswer = 16 << 20

// getJSON reads an API server's answer to its end: the server logs one that is cut off as an error.
func getJSON(ctx context.Context, client *http.Client, url string, into any) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	switch {
	case response.StatusCode != http.StatusOK:
		return errors.New(response.Status)
	case err != nil:
		return err
	}
	return json.Unmarshal(text, into)
}
