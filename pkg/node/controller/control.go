// Package controller maintains a cluster's nodes: it rotates the bootstrap token, approves kubelets' serving
// certificates, labels nodes with their roles, and deletes nodes whose machine is gone.
//
// Its rule: every master runs it all the time, without leader election. Each step compares the actual state with the
// desired one and changes the difference; two masters that do the same at once have the effect of one.
package controller

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"strings"
	"time"
)

// Node is a node as the API server shows it.
type Node struct {
	Name string
	// UID distinguishes it from a later node of the same name.
	UID string
	// Instance is the cloud's instance id, as the kubelet registered it; "" if there is no cloud.
	Instance string
	// Names and Addresses are those that the node reports in its status.
	Names     []string
	Addresses []netip.Addr
	Labels    map[string]string
	// Ready is the node's condition Ready.
	Ready bool
}

// Request is a pending certificate request.
type Request struct {
	Name string
	// User and Groups identify the requester, as authenticated by the API server.
	User   string
	Groups []string
	Usages []string
	// PEM is the certificate signing request.
	PEM []byte
}

// Instance is a machine as the cloud shows it.
type Instance struct {
	ID string
	// Name is the private DNS name, or only its first label if the cloud does not tell the domain.
	Name      string
	Addresses []netip.Addr
	// Gone: it is terminated or terminating.
	Gone bool
}

// Is reports whether name is one of the instance's names, or the name of a node on it.
func (i Instance) Is(name string) bool {
	host, _, _ := strings.Cut(name, ".")
	return name == i.ID || i.Name != "" && (name == i.Name || host == i.Name)
}

// Nodes are the cluster's nodes. All methods may be repeated; a node that no longer exists is not an error.
type Nodes interface {
	Nodes(ctx context.Context) ([]Node, error)
	// Label sets labels and leaves others alone.
	Label(ctx context.Context, node string, labels map[string]string) error
	// Remove deletes this node, but not a later one of the same name.
	Remove(ctx context.Context, node Node) error
	// Masters returns the addresses of the API servers.
	Masters(ctx context.Context) ([]netip.Addr, error)
}

// Requests are kubelets' requests for serving certificates.
type Requests interface {
	// Requests returns the pending ones.
	Requests(ctx context.Context) ([]Request, error)
	// Approve approves one. A request that was decided meanwhile is not an error.
	Approve(ctx context.Context, request, why string) error
}

// Objects writes API objects of any kind.
type Objects interface {
	// Apply creates or updates an object.
	Apply(ctx context.Context, object map[string]any) error
}

// Secrets is the cluster's store. Its errors match those of package pki.
type Secrets interface {
	Get(ctx context.Context, object string) ([]byte, error)
	Put(ctx context.Context, object string, content []byte) error
}

// Instances reads the cloud. Machines that it does not know are missing from the result.
type Instances interface {
	// Instances returns those whose private DNS name or id is one of names.
	Instances(ctx context.Context, names []string) ([]Instance, error)
}

// Controller is the controller of one master.
type Controller struct {
	Nodes    Nodes
	Requests Requests
	Objects  Objects
	Secrets  Secrets
	// Instances is nil if there is no cloud: then a node's own status is trusted, and no node is deleted.
	Instances Instances
	// Reserved is never in a kubelet's serving certificate.
	Reserved Reserved
	// Self returns the node of this machine; nil if it is not a node. It is asked only if there is no cloud.
	Self func() (Self, error)
	Now  func() time.Time
	Log  *slog.Logger

	// refused has the requests that were refused, so that each refusal is logged once.
	refused map[string]bool
}

const (
	// interval is the time between two runs. The logs of a new node are unavailable for as long.
	interval = 5 * time.Second
	// tokenInterval is the time between two checks of the token, which changes twice a day.
	tokenInterval = time.Minute
)

// Run runs until ctx ends. ready is called after the first run without an error: then machines can join.
func (c *Controller) Run(ctx context.Context, ready func()) error {
	var token time.Time // the next check
	for first := true; ; {
		var tokenErr error
		if now := c.Now(); !now.Before(token) {
			if tokenErr = c.Token(ctx); tokenErr == nil {
				token = now.Add(tokenInterval)
			}
		}
		err := errors.Join(tokenErr, c.Reconcile(ctx))
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

// Reconcile reconciles nodes and requests once. It continues after errors, and returns all of them.
func (c *Controller) Reconcile(ctx context.Context) error {
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
	return errors.Join(c.label(ctx, nodes, masters, known), c.approve(ctx, nodes, requests, masters, known), c.remove(ctx, nodes, known))
}

// cloud has the instances that were looked up. The zero value means that there is no cloud.
type cloud struct {
	none      bool
	instances []Instance
}

// find returns the instance of that name. If a terminated machine and its successor share a name, the running one wins.
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

// instances looks up only nodes that need a decision: in an idle cluster the cloud is not called.
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

// remove deletes nodes whose machine is gone. A node that is Ready has a machine, whatever the cloud says; a node
// without an instance id is never deleted.
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
