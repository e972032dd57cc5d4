// Package control keeps a cluster's nodes in order: the token by which machines join, their server certificates, their
// roles, and the ones whose machine is gone.
//
// Its rule: every master does the same all the time. Each step looks at what is, and changes what should not be so;
// nobody leads, and what two do at once is what one would have done.
package control

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"strings"
	"time"
)

// Node is a node as the API server has it.
type Node struct {
	Name string
	// UID tells it from a later node of the same name.
	UID string
	// Instance is the cloud's id of its machine, as the kubelet registered it; "" where there is no cloud.
	Instance string
	// Names and Addresses are the node's own words about itself.
	Names     []string
	Addresses []netip.Addr
	Labels    map[string]string
	// Ready says that its kubelet reports, and that all is well.
	Ready bool
}

// Request is a certificate request that waits for somebody's word.
type Request struct {
	Name string
	// User and Groups are who asks, as the API server has authenticated them.
	User   string
	Groups []string
	Usages []string
	// PEM is the request itself.
	PEM []byte
}

// Instance is a machine as the cloud has it.
type Instance struct {
	ID string
	// Name is the private DNS name, or its first label where the cloud says no more.
	Name      string
	Addresses []netip.Addr
	// Gone: it has ended or is ending, and does not come back.
	Gone bool
}

// Is reports whether that is one of the instance's names, or a node's that was made of one.
func (i Instance) Is(name string) bool {
	host, _, _ := strings.Cut(name, ".")
	return name == i.ID || i.Name != "" && (name == i.Name || host == i.Name)
}

// Nodes are the cluster's nodes. All methods may be repeated; what is not there any more is no error.
type Nodes interface {
	Nodes(ctx context.Context) ([]Node, error)
	// Label sets labels and leaves others alone.
	Label(ctx context.Context, node string, labels map[string]string) error
	// Remove deletes exactly this node, not a later one of its name.
	Remove(ctx context.Context, node Node) error
	// Masters are the addresses of the API servers, as they announce themselves.
	Masters(ctx context.Context) ([]netip.Addr, error)
}

// Requests are those for the certificates that kubelets serve with.
type Requests interface {
	// Requests are the ones that nobody has decided.
	Requests(ctx context.Context) ([]Request, error)
	// Approve has the controller manager sign one. One that was decided meanwhile is no error.
	Approve(ctx context.Context, request, why string) error
}

// Objects are the API server's objects of any kind.
type Objects interface {
	// Apply makes an object what it says.
	Apply(ctx context.Context, object map[string]any) error
}

// Secrets is the cluster's store. Errors match pki's.
type Secrets interface {
	Get(ctx context.Context, object string) ([]byte, error)
	Put(ctx context.Context, object string, content []byte) error
}

// Instances is the cloud. A machine that is not in the answer is not known to it.
type Instances interface {
	// Instances are those whose private DNS name or id is one of the names.
	Instances(ctx context.Context, names []string) ([]Instance, error)
}

// Controller is what one master does.
type Controller struct {
	Nodes    Nodes
	Requests Requests
	Objects  Objects
	Secrets  Secrets
	// Instances is nil where there is no cloud: then a node is believed what it says of itself, and none is removed.
	Instances Instances
	Now       func() time.Time
	Log       *slog.Logger

	// told are the requests that have been refused, so that the reason is logged once.
	told map[string]bool
}

const (
	// interval is between two looks. A node's logs are out of reach for as long, when it is new.
	interval = 5 * time.Second
	// tokenInterval is between two looks at the token, which changes twice a day.
	tokenInterval = time.Minute
)

// Run works until the context ends. ready is called when everything has been in order once: then machines can join.
func (c *Controller) Run(ctx context.Context, ready func()) error {
	var token time.Time // of the next look
	for first := true; ; {
		var tokenErr error
		if now := c.Now(); !now.Before(token) {
			if tokenErr = c.Token(ctx); tokenErr == nil {
				token = now.Add(tokenInterval)
			}
		}
		err := errors.Join(tokenErr, c.Look(ctx))
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			c.Log.Warn("keeping the nodes in order, which is tried again", "error", err)
		} else if first {
			ready()
			first = false
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(interval):
		}
	}
}

// Look is one look at nodes and requests. It does what it can, and returns everything that went wrong.
func (c *Controller) Look(ctx context.Context) error {
	nodes, err := c.Nodes.Nodes(ctx)
	if err != nil {
		return err
	}
	requests, err := c.Requests.Requests(ctx)
	if err != nil {
		return err
	}
	masters, err := c.Nodes.Masters(ctx)
	if err != nil {
		return err
	}
	known, err := c.instances(ctx, nodes, masters, requests)
	if err != nil {
		return err
	}
	return errors.Join(c.label(ctx, nodes, masters, known), c.approve(ctx, nodes, requests, known), c.remove(ctx, nodes, known))
}

// cloud is what the cloud says of the names that were asked for. None has no cloud to ask.
type cloud struct {
	none      bool
	instances []Instance
}

// find is the instance of that name. A name can be a gone machine's and its successor's: who lives counts.
func (c cloud) find(name string) (Instance, bool) {
	var found Instance
	ok := false
	for _, i := range c.instances {
		if i.Is(name) && (!ok || found.Gone) {
			found, ok = i, true
		}
	}
	return found, ok
}

// instances asks the cloud about those nodes that something has to be decided about, and about no other: in a
// cluster at rest nothing is asked.
func (c *Controller) instances(ctx context.Context, nodes []Node, masters []netip.Addr, requests []Request) (cloud, error) {
	if c.Instances == nil {
		return cloud{none: true}, nil
	}
	var names []string
	for _, n := range nodes {
		if !n.Ready || len(missing(n, n.Addresses, masters)) > 0 {
			names = append(names, n.Name)
			if n.Instance != "" {
				names = append(names, n.Instance)
			}
		}
	}
	for _, r := range requests {
		if name, ok := nodeOf(r); ok {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return cloud{}, nil
	}
	found, err := c.Instances.Instances(ctx, names)
	return cloud{instances: found}, err
}

// remove deletes nodes whose machine is gone. A node that still reports has a machine, whatever the cloud says; and
// one that names no machine has none to be gone.
func (c *Controller) remove(ctx context.Context, nodes []Node, known cloud) error {
	if known.none {
		return nil
	}
	var errs []error
	for _, n := range nodes {
		if i, ok := known.find(n.Instance); n.Ready || n.Instance == "" || ok && !i.Gone {
			continue
		}
		c.Log.Info("removing a node whose machine is gone", "node", n.Name, "instance", n.Instance)
		errs = append(errs, c.Nodes.Remove(ctx, n))
	}
	return errors.Join(errs...)
}
