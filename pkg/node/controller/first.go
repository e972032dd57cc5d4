package controller

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"hash/fnv"
	"net/netip"
	"slices"
	"strings"
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
	perRun  = 100
	proving = 20 * time.Second
	// patience is how long a request is looked at. A machine makes another one when the proof in its last one expires, and
	// a request is kept by the API server for a day.
	patience = 10 * time.Minute
	// fetching is how long a used token of one machine stays good, with which the machine fetches its certificate.
	fetching = 5 * time.Minute
	// tokenUser begins the name of who comes with a bootstrap token; its ID follows.
	tokenUser = "system:bootstrap:"
)

// proof is what is known of a machine's request for its first certificate.
type proof struct {
	seen time.Time
	// name is the node's, and der the request.
	name string
	der  []byte
	// token is the ID of the token for this machine alone that the request came with; "" for the cluster's token.
	token string
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
			if p.err == nil {
				p.token, p.err = ownToken(r, p.name)
			}
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

// ownToken returns the ID of the token for one machine that a request for a node comes with, or why that is not the node's.
func ownToken(r Request, node string) (string, error) {
	bound := pki.MachineGroups(r.Groups)
	if len(bound) == 0 {
		return "", nil
	}
	if group, err := pki.MachineGroup(node); err != nil || !slices.Equal(bound, []string{group}) {
		return "", fmt.Errorf("the token is for the machine of %v, which asks for the node %s", bound, node)
	}
	id, ok := strings.CutPrefix(r.User, tokenUser)
	if !ok || id == "" {
		return "", fmt.Errorf("%s does not come with a bootstrap token", r.User)
	}
	return id, nil
}

func hasNames(r *x509.CertificateRequest) bool {
	return len(r.DNSNames)+len(r.IPAddresses)+len(r.EmailAddresses)+len(r.URIs) > 0
}

// judgeFirst returns why a machine must not get the certificate of a node, or nil.
func (c *Controller) judgeFirst(p *proof, nodes []Node, known cloud, tokens []MachineToken) error {
	if p.err != nil {
		return p.err
	}
	if known.none {
		if err := c.mayCome(p, tokens); err != nil {
			return err
		}
		return unused(p.name, nodes)
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

// mayCome returns why a machine without a cloud may not ask for a name: the name waits for the machine with a token for
// it, or the cluster gives no names without one.
func (c *Controller) mayCome(p *proof, tokens []MachineToken) error {
	if p.token != "" {
		return nil
	}
	if c.NoFirstCome {
		return fmt.Errorf("the cluster has FIRST_COME=no, and the machine has no token of its own: hardtack userdata --machine %s makes one", p.name)
	}
	group, err := pki.MachineGroup(p.name)
	if err != nil {
		return nil // there can be no token for it
	}
	for _, t := range tokens {
		if slices.Contains(t.Groups, group) && c.Now().Before(t.Expires) {
			return fmt.Errorf("the name %s waits until %s for the machine with the token %s", p.name, t.Expires.UTC().Format(time.RFC3339), t.ID)
		}
	}
	return nil
}

// unused returns why a machine without a cloud cannot have a name: a node has it and works. A node that does not work
// may be this machine, which has lost its key by a reboot.
func unused(name string, nodes []Node) error {
	if slices.ContainsFunc(nodes, func(n Node) bool { return n.Name == name && n.Ready }) {
		return fmt.Errorf("the node %s is there and Ready", name)
	}
	return nil
}

// needTokens reports whether the tokens of single machines matter for a request.
func needTokens(first []Request, proofs map[string]*proof, known cloud) bool {
	return slices.ContainsFunc(first, func(r Request) bool {
		p := proofs[r.UID]
		return p.err == nil && !p.old && (known.none || p.token != "")
	})
}

// use marks the token of one machine as used by a request, before that is approved: it is good for one. The machine
// fetches its certificate with it, and then it expires. The error matches errTurn if another master is about to decide.
func (c *Controller) use(ctx context.Context, r Request, p *proof, tokens []MachineToken) error {
	if p.token == "" {
		return nil
	}
	i := slices.IndexFunc(tokens, func(t MachineToken) bool { return t.ID == p.token })
	if i < 0 {
		return fmt.Errorf("the token %s is no longer there: it was used, has expired, or was deleted", p.token)
	}
	t := &tokens[i]
	group, err := pki.MachineGroup(p.name)
	switch {
	case err != nil:
		return err
	case t.User == r.UID:
		return nil // marked by an earlier run, which did not come to approve the request
	case t.User != "":
		return fmt.Errorf("the token %s was used by another request: hardtack userdata --machine %s makes another", t.ID, p.name)
	case !slices.Equal(t.Groups, []string{group}):
		return fmt.Errorf("the token %s is for %v", t.ID, t.Groups)
	case !c.Now().Before(t.Expires):
		return fmt.Errorf("the token %s expired at %s", t.ID, t.Expires.UTC().Format(time.RFC3339))
	}
	used := *t
	used.User = r.UID
	if end := c.Now().Add(fetching); end.Before(used.Expires) {
		used.Expires = end
	}
	err = c.Tokens.Use(ctx, used)
	if errors.Is(err, ErrChanged) {
		return errTurn
	}
	if err == nil {
		*t = used
	}
	return err
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
