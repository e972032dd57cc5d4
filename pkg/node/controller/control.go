// Package controller maintains a cluster's nodes: it rotates the bootstrap token, approves kubelets' certificates, labels
// nodes with their roles, completes the launches of minions, and deletes nodes whose machine is gone.
//
// Its rule: every master runs it all the time, without leader election. Each step compares the actual state with the
// desired one and changes the difference; two masters that do the same at once have the effect of one. Only what asks
// AWS who a machine is takes turns.
package controller

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/pki"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
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
	// Uninitialized: no pods come to it before the cloud's controller has described it.
	Uninitialized bool
	// Word is what its machine says of its launch, and Answer what a master has answered.
	Word   Word
	Answer Answer
}

// The signers of kubelets' certificates.
const (
	SignerServing = "kubernetes.io/kubelet-serving"
	SignerClient  = "kubernetes.io/kube-apiserver-client-kubelet"
)

// The annotations of a certificate request: the proof of identity, which the machine gives, and the reason why the
// request stays undecided, which the machine can read.
const (
	AnnotationProof  = "hardtack.dev/identity"
	AnnotationReason = "hardtack.dev/undecided"
	// AnnotationUser is of a machine's token: the UID of the request that has used it.
	AnnotationUser = "hardtack.dev/used-by"
)

// Request is a pending certificate request.
type Request struct {
	Name string
	// UID distinguishes it from a later one of the same name.
	UID string
	// Signer is SignerServing or SignerClient.
	Signer string
	// Proof is its AnnotationProof, and Reason its AnnotationReason; "" if it has none.
	Proof, Reason string
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
	// Name is the private DNS name, or only its first label if the cloud does not tell the domain. PublicName is the public DNS
	// name, empty for a machine without one: no node is called so.
	Name, PublicName string
	// Addresses are all that the machine has, public ones too. They say which machine it is, and are never announced.
	Addresses []netip.Addr
	// Running: it is pending or running. Gone: it is terminated or terminating.
	Running, Gone bool
	// Group is its AutoScaling group in this cluster, Roles the group's roles and Role the name of the IAM role that the
	// group gives its machines; all are empty for a machine outside the cluster's groups.
	Group string
	Roles role.Set
	Role  string
	// State is its lifecycle state in that group: "Pending:Wait", "InService".
	State string
}

// Is reports whether name is one of the instance's names, or the name of a node on it: its id, its private DNS name, or
// the first label of that. If the cloud does not tell the domain, that of the name does not matter: addresses and ids are
// unique in a VPC.
func (i Instance) Is(name string) bool {
	host, domain, _ := strings.Cut(name, ".")
	label, known, _ := strings.Cut(i.Name, ".")
	return host != "" && (host == i.ID || host == label) && (domain == "" || known == "" || domain == known)
}

// Caller is the signer of a proof of identity: an instance and the IAM role whose credentials it has.
type Caller struct{ Instance, Role string }

// ErrRefused means that a proof of identity is worth nothing, and will not be worth more later.
var ErrRefused = errors.New("the proof of identity is refused")

// Identities verifies proofs of identity.
type Identities interface {
	// Verify returns who has signed the proof for the certificate request, which is DER.
	Verify(ctx context.Context, proof string, request []byte) (Caller, error)
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
	// Tell writes a node's Answer, but not into a later node of the same name.
	Tell(ctx context.Context, node Node, a Answer) error
}

// Requests are kubelets' requests for certificates.
type Requests interface {
	// Requests returns the pending ones.
	Requests(ctx context.Context) ([]Request, error)
	// Approve approves one. A request that was decided meanwhile is not an error.
	Approve(ctx context.Context, request, why string) error
	// Undecided writes AnnotationReason. A request that is gone is not an error.
	Undecided(ctx context.Context, request, why string) error
	// Watch calls came for each new request for a client certificate until ctx ends or the watch breaks.
	Watch(ctx context.Context, came func()) error
}

// Objects writes API objects of any kind.
type Objects interface {
	// Apply creates or updates an object.
	Apply(ctx context.Context, object map[string]any) error
}

// MachineToken is the bootstrap token of one machine, without its secret.
type MachineToken struct {
	ID string
	// Groups are those of pki.MachineGroups.
	Groups  []string
	Expires time.Time
	// User is the UID of the request that has used it; "" if none has.
	User string
	// Version is that of its Secret.
	Version string
}

// ErrChanged means that a token was changed or deleted since it was read.
var ErrChanged = errors.New("the token has changed meanwhile")

// Tokens are the bootstrap tokens of single machines.
type Tokens interface {
	Tokens(ctx context.Context) ([]MachineToken, error)
	// Use gives a token its User and the time when it expires. Of several calls with the same Version one succeeds, and
	// the others' errors match ErrChanged.
	Use(ctx context.Context, t MachineToken) error
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
	Tokens   Tokens
	Secrets  Secrets
	// Instances is nil if there is no cloud: then a node's own status is trusted, and no node is deleted.
	Instances Instances
	// Identities is nil if there is no cloud: then the machine with a token for a name gets it, or else the first that asks.
	Identities Identities
	// Launches is nil if no group waits for its machines.
	Launches Launches
	// NoFirstCome: without a cloud, only a token for it gives a machine its name.
	NoFirstCome bool
	// Reserved is never in a kubelet's serving certificate.
	Reserved Reserved
	// Self returns the machine of this controller.
	Self func() (Self, error)
	Now  func() time.Time
	Log  *slog.Logger
	// Turn, if not nil, is called at each turn of the loop.
	Turn func()

	// made is the token that the API server has and the store does not have yet.
	made pki.Token
	// refused has the requests that stay undecided, with the reason that was logged.
	refused map[string]string
	// proofs has what is known of the requests for client certificates, by their UIDs.
	proofs map[string]*proof
	// launches has what is known of the launches that wait for a master, by the nodes' UIDs.
	launches map[string]*launch
	// there is when the machine of a node that is not Ready was last seen to be there, by the nodes' UIDs.
	there map[string]time.Time
}

const (
	// interval is the time between two runs. The logs of a new node are unavailable for as long.
	interval = 5 * time.Second
	// pause is the time between two runs while machines join, at least: each run lists all nodes.
	pause = time.Second
	// tokenInterval is the time between two checks of the token, which changes twice a day.
	tokenInterval = time.Minute
	// lookAgain is the time after which a machine whose node is not Ready is looked up again, although it was there. A node is
	// deleted that much later; who needs its name meanwhile looks for itself.
	lookAgain = 30 * time.Second
)

// Run runs until ctx ends. ready is called after the first run without an error: then machines can join.
func (c *Controller) Run(ctx context.Context, ready func()) error {
	came := make(chan struct{}, 1)
	go c.watch(ctx, came)
	var token time.Time // the next check
	for first := true; ; {
		if c.Turn != nil {
			c.Turn()
		}
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
		if !c.sleep(ctx, came) {
			return nil
		}
	}
}

// watch tells that a machine asks for its first certificate, so that it need not wait for the next run.
func (c *Controller) watch(ctx context.Context, came chan<- struct{}) {
	for ctx.Err() == nil {
		err := c.Requests.Watch(ctx, func() {
			select {
			case came <- struct{}{}:
			default: // the next run sees it too
			}
		})
		if ctx.Err() == nil {
			c.Log.Debug("watching for certificate requests, which is tried again", "error", err)
		}
		wait(ctx, interval, nil)
	}
}

// sleep waits for the next run; it returns false if ctx has ended.
func (c *Controller) sleep(ctx context.Context, came <-chan struct{}) bool {
	wait(ctx, pause, nil)
	wait(ctx, interval-pause, came)
	return ctx.Err() == nil
}

func wait(ctx context.Context, d time.Duration, came <-chan struct{}) {
	select {
	case <-ctx.Done():
	case <-came:
	case <-time.After(d):
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
	self, err := c.Self()
	if err != nil {
		return err
	}
	first, serving := split(requests)
	c.prove(ctx, first, self.Addresses, masters)
	launches := c.due(nodes, self.Addresses, masters)
	lost := c.lost(nodes)
	known, err := c.instances(ctx, nodes, lost, masters, requests, launches)
	if err != nil {
		return err
	}
	return errors.Join(c.launch(ctx, launches, known), c.label(ctx, nodes, self, known), c.approve(ctx, nodes, first, serving, masters, self, known), c.remove(ctx, lost, known))
}

// split returns the machines' requests for their first certificate, and those for serving certificates. A node that renews
// its client certificate is the controller manager's affair.
func split(requests []Request) (first, serving []Request) {
	for _, r := range requests {
		switch {
		case r.Signer == SignerServing:
			serving = append(serving, r)
		case !slices.Contains(r.Groups, nodesGroup):
			first = append(first, r)
		}
	}
	return first, serving
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

// byID returns the instance with that id.
func (c cloud) byID(id string) (Instance, bool) {
	i := slices.IndexFunc(c.instances, func(i Instance) bool { return i.ID == id })
	if i < 0 {
		return Instance{}, false
	}
	return c.instances[i], true
}

// lost returns the nodes that are not Ready, and whose machine, which they name, was not seen to be there in the last lookAgain: a thousand machines
// that join are not Ready for a minute, which is no reason to look for all of them every five seconds.
func (c *Controller) lost(nodes []Node) []Node {
	now := c.Now()
	var out []Node
	there := map[string]time.Time{}
	for _, n := range nodes {
		if n.Ready || n.Instance == "" {
			continue
		}
		if at, ok := c.there[n.UID]; ok && now.Before(at.Add(lookAgain)) {
			there[n.UID] = at
			continue
		}
		out = append(out, n)
	}
	c.there = there
	return out
}

// instances looks up only nodes that need a decision: in an idle cluster the cloud is not called.
func (c *Controller) instances(ctx context.Context, nodes, lost []Node, masters []netip.Addr, requests []Request, launches []Node) (cloud, error) {
	if c.Instances == nil {
		return cloud{none: true}, nil
	}
	var names []string
	for _, n := range launches {
		names = append(names, n.Name)
	}
	named := func(n Node) {
		names = append(names, n.Name)
		if n.Instance != "" {
			names = append(names, n.Instance)
		}
	}
	for _, n := range nodes {
		if mayLack(n, masters) {
			named(n)
		}
	}
	for _, n := range lost {
		named(n)
	}
	for _, r := range requests {
		if name, ok := nodeOf(r); ok && r.Signer == SignerServing {
			names = append(append(names, name), holders(nodes, name)...)
		}
		if p := c.proofs[r.UID]; p != nil && !p.old && p.caller.Instance != "" {
			names = append(names, p.caller.Instance)
			names = append(names, holders(nodes, p.name)...)
		}
	}
	if len(names) == 0 {
		return cloud{}, nil
	}
	found, err := c.Instances.Instances(ctx, names)
	return cloud{instances: found}, err
}

// remove deletes those of the lost nodes whose machine is gone. A node that is Ready has a machine, whatever the cloud says; a
// node without an instance id is never deleted.
func (c *Controller) remove(ctx context.Context, lost []Node, known cloud) error {
	if known.none {
		return nil
	}
	var errs []error
	for _, n := range lost {
		if i, ok := known.find(n.Instance); ok && !i.Gone {
			c.there[n.UID] = c.Now()
			continue
		}
		c.Log.Info("removing a node whose machine is gone", "node", n.Name, "instance", n.Instance)
		errs = append(errs, c.Nodes.Remove(ctx, n))
	}
	return errors.Join(errs...)
}
