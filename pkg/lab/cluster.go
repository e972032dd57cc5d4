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
	daemon *Daemon
	// ca is the public certificate, authority what signs administrators' certificates.
	ca        []byte
	authority pki.Authority
	// forward is where the API server is reached on this computer.
	forward string

	mu    sync.Mutex
	nodes []Node
}

// newCluster makes the cluster's authorities in its store, as `hardtack pki create` does, and the API's forwarded port.
func newCluster(ctx context.Context, d *Daemon, secrets authority.Store) (*cluster, error) {
	if _, err := authority.Create(ctx, secrets, d.plan.Cluster, time.Now()); err != nil {
		return nil, err
	}
	c := &cluster{daemon: d}
	crt, err := secrets.Get(ctx, pki.KubernetesCA+pki.Crt)
	if err != nil {
		return nil, err
	}
	key, err := secrets.Get(ctx, pki.KubernetesCA+pki.Key)
	if err != nil {
		return nil, err
	}
	if c.authority, err = pki.ParseAuthority(crt, key); err != nil {
		return nil, fmt.Errorf("reading the cluster's authority: %w", err)
	}
	c.ca = crt
	addr, err := d.runner.Forward(ctx, "127.0.0.1:0", c.master)
	if err != nil {
		return nil, fmt.Errorf("forwarding the API's port: %w", err)
	}
	c.forward = addr.String()
	return c, nil
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

// admin is a fresh certificate of an administrator.
func (c *cluster) admin() (pki.Pair, error) {
	return c.authority.Issue(pki.Profile{Name: "hardtack-lab", Groups: []string{pki.GroupAdmins}, Usage: pki.Client, Life: adminLife}, time.Now())
}

// kubeconfig is for this computer's kubectl.
func (c *cluster) kubeconfig() ([]byte, error) {
	pair, err := c.admin()
	if err != nil {
		return nil, fmt.Errorf("making a certificate for kubectl: %w", err)
	}
	return pki.Kubeconfig{Server: "https://" + c.forward, ServerName: c.serverName(), CA: c.ca, User: "hardtack-lab", Pair: pair}.Render(), nil
}

// client speaks to the API server as an administrator.
func (c *cluster) client() (*http.Client, error) {
	pair, err := c.admin()
	if err != nil {
		return nil, err
	}
	cert, err := tls.X509KeyPair(pair.Certificate, pair.Key)
	if err != nil {
		return nil, fmt.Errorf("reading the administrator's certificate: %w", err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(c.ca)
	return &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{TLSClientConfig: &tls.Config{
		MinVersion: tls.VersionTLS12, RootCAs: roots, ServerName: c.serverName(), Certificates: []tls.Certificate{cert},
	}}}, nil
}

// watch asks for the nodes again and again, until ctx ends.
func (c *cluster) watch(ctx context.Context) {
	client, err := c.client()
	if err != nil {
		c.daemon.log.Error("the nodes are not watched", "error", err)
		return
	}
	defer client.CloseIdleConnections()
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
