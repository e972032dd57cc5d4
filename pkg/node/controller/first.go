package controller

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"hash/fnv"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/pki"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// clientUsages are the usages of a kubelet's client certificate; an RSA key has one more.
var clientUsages = [][]string{{"client auth", "digital signature"}, {"client auth", "digital signature", "key encipherment"}}

const (
	// turn is how long a master leaves a request to the one whose turn it is, so that each machine that joins costs one call
	// to STS. If that master is gone, the next one's turn comes while the proof is still good.
	turn = 15 * time.Second
	// provers is how many proofs are verified at once, perRun how many in one run, and proving how long that may take: who has
	// a token can make any number of requests.
	provers = 16
	perRun  = 200
	proving = 20 * time.Second
	// patience is how long a request is looked at. A machine makes another one when the proof in its last one expires, and
	// a request is kept by the API server for a day.
	patience = 10 * time.Minute
)

// proof is what is known of a machine's request for its first certificate.
type proof struct {
	seen time.Time
	// name is the node's, and der the request.
	name string
	der  []byte
	// caller has signed the proof; the zero value if that is not known (yet).
	caller Caller
	// err is why the request is refused; final if that cannot change.
	err   error
	final bool
	// old: it has been undecided for longer than patience.
	old bool
}

// errTurn is of a request that another master is to look at first.
var errTurn = errors.New("it is another master's turn")

// prove verifies the proofs of new requests. What it finds out about a request stays: each has one proof and is
// verified once.
func (c *Controller) prove(ctx context.Context, requests []Request, self, masters []netip.Addr) {
	now := c.Now()
	have := map[string]*proof{}
	var ask []Request
	for _, r := range requests {
		p := c.proofs[r.UID]
		if p == nil {
			p = &proof{seen: now}
			p.name, p.der, p.err = readFirst(r)
			p.final = p.err != nil
		}
		have[r.UID] = p
		p.old = now.Sub(p.seen) > patience
		switch {
		case c.Identities == nil, p.final, p.old, p.caller != (Caller{}):
		case now.Sub(p.seen) < time.Duration(rank(r.UID, self, masters))*turn:
			p.err = errTurn
		default:
			ask = append(ask, r)
		}
	}
	c.proofs = have
	c.verify(ctx, ask[:min(len(ask), perRun)])
}

// verify asks who has signed the proofs.
func (c *Controller) verify(ctx context.Context, requests []Request) {
	ctx, cancel := context.WithTimeout(ctx, proving)
	defer cancel()
	var wg sync.WaitGroup
	free := make(chan struct{}, provers)
	for _, r := range requests {
		p := c.proofs[r.UID]
		wg.Go(func() {
			free <- struct{}{}
			defer func() { <-free }()
			p.caller, p.err = c.Identities.Verify(ctx, r.Proof, p.der)
			p.final = errors.Is(p.err, ErrRefused)
		})
	}
	wg.Wait()
}

// rank is this master's place in the order in which the masters look at a request: 0 is the first.
func rank(uid string, self, masters []netip.Addr) int {
	weight := func(a netip.Addr) uint64 {
		h := fnv.New64a()
		_, _ = h.Write([]byte(uid + " " + a.String())) // never fails: see its documentation
		return h.Sum64()
	}
	i := slices.IndexFunc(masters, func(a netip.Addr) bool { return slices.Contains(self, a) })
	if i < 0 {
		return len(masters) // this master is not announced: the others go first
	}
	rank := 0
	for _, a := range masters {
		if weight(a) < weight(masters[i]) {
			rank++
		}
	}
	return rank
}

// readFirst returns the node's name and the DER of a machine's request for its first certificate, or why it is none.
func readFirst(r Request) (string, []byte, error) {
	if !slices.Contains(r.Groups, pki.GroupBootstrappers) {
		return "", nil, fmt.Errorf("%s does not come with a bootstrap token", r.User)
	}
	asked, err := parseRequest(r.PEM)
	if err != nil {
		return "", nil, err
	}
	name, ok := nodeOf(Request{User: asked.Subject.CommonName, Groups: asked.Subject.Organization})
	if !ok || len(asked.Subject.Names) != 2 {
		return "", nil, fmt.Errorf("the subject %s is not a node's", asked.Subject)
	}
	usages := slices.Sorted(slices.Values(r.Usages))
	if !slices.ContainsFunc(clientUsages, func(u []string) bool { return slices.Equal(u, usages) }) {
		return "", nil, fmt.Errorf("the usages %q are not a kubelet's", r.Usages)
	}
	if hasNames(asked) {
		return "", nil, errors.New("a client's certificate has no names or addresses beside its subject")
	}
	return name, asked.Raw, nil
}

func hasNames(r *x509.CertificateRequest) bool {
	return len(r.DNSNames)+len(r.IPAddresses)+len(r.EmailAddresses)+len(r.URIs) > 0
}

// judgeFirst returns why a machine must not get the certificate of a node, or nil.
func judgeFirst(p *proof, nodes []Node, known cloud) error {
	if p.err != nil {
		return p.err
	}
	if known.none {
		return firstCome(p.name, nodes)
	}
	machine, ok := known.byID(p.caller.Instance)
	switch {
	case !ok:
		return fmt.Errorf("instance %q is not one of the cluster's", p.caller.Instance)
	case !machine.Running:
		return fmt.Errorf("instance %s does not run", machine.ID)
	case machine.Group == "" || !machine.Roles.Has(role.Minions):
		return fmt.Errorf("instance %s is in no group of the cluster with the role %s (its group is %q, with %q)", machine.ID, role.Minions, machine.Group, machine.Roles)
	case machine.Role == "":
		return fmt.Errorf("the group %s has no tag %s with the name of its machines' IAM role", machine.Group, role.TagInstanceRole)
	case machine.Role != p.caller.Role:
		// Whoever may assume a role can call its session by an instance's id.
		return fmt.Errorf("the proof is of the IAM role %s, and the machines of the group %s have %s", p.caller.Role, machine.Group, machine.Role)
	case !machine.Is(p.name):
		return fmt.Errorf("instance %s is %s, and asks for the node %s", machine.ID, machine.Name, p.name)
	}
	return taken(p.name, machine, nodes, known)
}

// taken returns why a name is not free for a machine that may have it.
func taken(name string, machine Instance, nodes []Node, known cloud) error {
	i := slices.IndexFunc(nodes, func(n Node) bool { return n.Name == name })
	if i < 0 || nodes[i].Instance == machine.ID {
		return nil
	}
	n := nodes[i]
	if n.Ready {
		return fmt.Errorf("the node %s is there and Ready, on %q", name, n.Instance)
	}
	if holder, ok := known.byID(n.Instance); n.Instance == "" || ok && !holder.Gone {
		return fmt.Errorf("the node %s is there, on %q, which is not gone: kubectl delete node %s, if it is", name, n.Instance, name)
	}
	return nil
}

// firstCome returns why a machine without a cloud cannot have a name: a node has it and works. A node that does not work
// may be this machine, which has lost its key by a reboot.
func firstCome(name string, nodes []Node) error {
	if slices.ContainsFunc(nodes, func(n Node) bool { return n.Name == name && n.Ready }) {
		return fmt.Errorf("the node %s is there and Ready", name)
	}
	return nil
}

// holders returns the instance of the node of that name.
func holders(nodes []Node, name string) []string {
	for _, n := range nodes {
		if n.Name == name && n.Instance != "" {
			return []string{n.Instance}
		}
	}
	return nil
}
