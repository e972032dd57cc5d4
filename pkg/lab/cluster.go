package lab

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/authority"
	"github.com/hardtack/packer-plugin-hardtack/pkg/awsfake"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// adminLife is how long the host's certificate is good for; a lab is rarely up for longer, and kubectl asks for
// another.
const adminLife = pki.AdminLife

// watchEvery is how often the API server is asked for its nodes.
const watchEvery = 3 * time.Second

// cluster is the lab's Kubernetes, as its administrator sees it from this computer.
type cluster struct {
	daemon  *Daemon
	secrets authority.Store
	// forward is where the API server is reached on this computer.
	forward string

	mu    sync.Mutex
	nodes []Node
	// ca is the public certificate, authority what signs administrators' certificates; nil until they are made.
	ca        []byte
	authority *pki.Authority
}

// newCluster makes the cluster's authorities in its store, as `hardtack pki create` does where the region is not to be
// empty, and the API's forwarded port.
func newCluster(ctx context.Context, d *Daemon, secrets authority.Store) (*cluster, error) {
	c := &cluster{daemon: d, secrets: secrets}
	if !d.plan.Empty {
		if _, err := authority.Create(ctx, secrets, d.plan.Cluster, time.Now()); err != nil {
			return nil, err
		}
		if _, _, err := c.trust(ctx); err != nil {
			return nil, err
		}
	}
	addr, err := d.runner.Forward(ctx, "127.0.0.1:0", c.master)
	if err != nil {
		return nil, fmt.Errorf("forwarding the API's port: %w", err)
	}
	c.forward = addr.String()
	return c, nil
}

// trust reads the cluster's authority from its store, once it is there.
func (c *cluster) trust(ctx context.Context) ([]byte, pki.Authority, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.authority != nil {
		return c.ca, *c.authority, nil
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
	c.ca, c.authority = crt, &a
	return crt, a, nil
}

// errNoMaster is when there is nobody to connect to.
var errNoMaster = errors.New("no machine with the role masters has power")

// master is the API of the oldest master that runs and serves, else of the oldest that runs.
func (c *cluster) master(context.Context) (netip.AddrPort, error) {
	var best netip.Addr
	for _, g := range c.daemon.host.list() {
		if !g.group.Roles.Has(role.Masters) || g.power() == nil {
			continue
		}
		if c.inService(g) {
			return netip.AddrPortFrom(g.addr, uint16(c.daemon.plan.APIPort)), nil
		}
		if !best.IsValid() {
			best = g.addr
		}
	}
	if !best.IsValid() {
		return netip.AddrPort{}, errNoMaster
	}
	return netip.AddrPortFrom(best, uint16(c.daemon.plan.APIPort)), nil
}

// serves reports whether a master is in service: its API server works by its own word.
func (c *cluster) serves() bool {
	for _, g := range c.daemon.host.list() {
		if g.group.Roles.Has(role.Masters) && g.power() != nil && c.inService(g) {
			return true
		}
	}
	return false
}

func (c *cluster) inService(g *guest) bool {
	for _, i := range c.daemon.region.account.AutoScaling().Instances(g.group.Scaling) {
		if i.ID == g.id {
			return i.State == awsfake.StateInService
		}
	}
	return false
}

// address is where the API server is reached on this computer.
func (c *cluster) address() string { return c.forward }

// serverName is what the API server's certificate says, whatever address it is reached by.
func (c *cluster) serverName() string {
	return string(role.Masters) + "." + c.daemon.plan.Cluster + ".k8s"
}

// admin is a fresh certificate of an administrator, and whom to trust.
func (c *cluster) admin(ctx context.Context) ([]byte, pki.Pair, error) {
	ca, a, err := c.trust(ctx)
	if err != nil {
		return nil, pki.Pair{}, err
	}
	pair, err := a.Issue(pki.Profile{Name: "hardtack-lab", Groups: []string{pki.GroupAdmins}, Usage: pki.Client, Life: adminLife}, time.Now())
	return ca, pair, err
}

// kubeconfig is for this computer's kubectl.
func (c *cluster) kubeconfig(ctx context.Context) ([]byte, error) {
	ca, pair, err := c.admin(ctx)
	if err != nil {
		return nil, fmt.Errorf("making a certificate for kubectl: %w", err)
	}
	return pki.Kubeconfig{Server: "https://" + c.forward, ServerName: c.serverName(), CA: ca, User: "hardtack-lab", Pair: pair}.Render(), nil
}

// client speaks to the API server as an administrator.
func (c *cluster) client(ctx context.Context) (*http.Client, error) {
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

// watch asks for the nodes again and again, until ctx ends.
func (c *cluster) watch(ctx context.Context) {
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
				c.daemon.log.Error("the nodes are not watched", "error", err)
				continue
			}
			defer made.CloseIdleConnections()
			client = made
		}
		nodes, err := c.read(ctx, client)
		if err != nil {
			c.daemon.log.Debug("the nodes could not be read", "error", err)
			continue // what was seen last stays: the API may be between two masters
		}
		c.mu.Lock()
		same := fmt.Sprint(c.nodes) == fmt.Sprint(nodes)
		c.nodes = nodes
		c.mu.Unlock()
		if !same {
			c.daemon.news()
		}
	}
}

// seen are the nodes as they were last read.
func (c *cluster) seen() []Node {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]Node{}, c.nodes...)
}

// nodeList is as much of the API's NodeList as is looked at.
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

func (c *cluster) read(ctx context.Context, client *http.Client) ([]Node, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+c.forward+"/api/v1/nodes", nil)
	if err != nil {
		return nil, fmt.Errorf("asking for the nodes: %w", err)
	}
	response, err := client.Do(request)
	if err != nil {
		return nil, fmt.Errorf("asking for the nodes: %w", err)
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("asking for the nodes: %s", response.Status)
	}
	var list nodeList
	if err := json.NewDecoder(response.Body).Decode(&list); err != nil {
		return nil, fmt.Errorf("reading the nodes: %w", err)
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
