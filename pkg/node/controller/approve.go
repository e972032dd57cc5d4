package controller

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// The identity of kubelets, as the API server's Node authorizer defines it.
const (
	userPrefix = "system:node:"
	nodesGroup = "system:nodes"
)

// The usages of a kubelet's server certificate, kubernetes.io/kubelet-serving.
const serverAuth = "server auth"

var servingUsages = []string{"digital signature", "key encipherment", serverAuth}

// nodeOf returns the name of the node that made the request.
func nodeOf(r Request) (string, bool) {
	name, ok := strings.CutPrefix(r.User, userPrefix)
	return name, ok && name != "" && slices.Contains(r.Groups, nodesGroup)
}

// approve decides requests: a machine gets the certificate of its own node only, and a kubelet one for the names and
// addresses of its own machine only. A refused request stays pending, so that an operator may still approve it.
func (c *Controller) approve(ctx context.Context, nodes []Node, first, serving []Request, masters []netip.Addr, self Self, known cloud) error {
	var errs []error
	undecided := map[string]string{}
	decide := func(r Request, what, why string, err error) {
		if err == nil {
			c.Log.Info("approving a node's "+what, "request", r.Name, "user", r.User)
			errs = append(errs, c.Requests.Approve(ctx, r.Name, why))
			return
		}
		why = err.Error()
		undecided[r.Name] = why
		if c.refused[r.Name] == why {
			return
		}
		c.Log.Warn("leaving a request for a node's "+what+" undecided", "request", r.Name, "user", r.User, "why", why)
		if r.Reason != why {
			errs = append(errs, c.Requests.Undecided(ctx, r.Name, why))
		}
	}
	var tokens []MachineToken
	if needTokens(first, c.proofs, known) {
		var err error
		if tokens, err = c.Tokens.Tokens(ctx); err != nil {
			errs, first = append(errs, err), nil
		}
	}
	for _, r := range first {
		p := c.proofs[r.UID]
		switch {
		case errors.Is(p.err, errTurn):
			continue
		case p.old:
			undecided[r.Name] = c.refused[r.Name]
			continue
		}
		err := c.judgeFirst(p, nodes, known, tokens)
		if err == nil {
			err = c.use(ctx, r, p, tokens)
		}
		if !errors.Is(err, errTurn) {
			decide(r, "first certificate", approval(p, known), err)
		}
	}
	for _, r := range serving {
		decide(r, "server certificate", "the names and addresses are those of the node's own machine", c.judge(r, nodes, masters, self, known))
	}
	c.refused = undecided
	return errors.Join(errs...)
}

// approval is what an approved request for a first certificate says.
func approval(p *proof, known cloud) string {
	switch {
	case known.none && p.token != "":
		return "the machine came with the token " + p.token + ", which is for this name only"
	case known.none:
		return "no working node has this name"
	}
	return "the machine has proved that it is the instance of this name"
}

// judge returns why a request must not be approved, or nil.
func (c *Controller) judge(r Request, nodes []Node, masters []netip.Addr, self Self, known cloud) error {
	name, ok := nodeOf(r)
	if !ok {
		return fmt.Errorf("%s is not a node", r.User)
	}
	asked, err := parseRequest(r.PEM)
	if err != nil {
		return err
	}
	if asked.Subject.CommonName != r.User || !slices.Equal(asked.Subject.Organization, []string{nodesGroup}) {
		return fmt.Errorf("the subject %s is not the requesting node's", asked.Subject)
	}
	if !slices.Contains(r.Usages, serverAuth) {
		return fmt.Errorf("the usage %q is missing", serverAuth)
	}
	for _, u := range r.Usages {
		if !slices.Contains(servingUsages, u) {
			return fmt.Errorf("the usage %q is not a server certificate's", u)
		}
	}
	names, addresses, err := machineNames(name, nodes, known)
	if err != nil {
		return err
	}
	if err := within(asked, names, addresses); err != nil {
		return err
	}
	if err := c.Reserved.free(asked); err != nil || !known.none {
		return err
	}
	return self.proven(asked, name, nodes, masters)
}

func parseRequest(text []byte) (*x509.CertificateRequest, error) {
	block, rest := pem.Decode(text)
	if block == nil || block.Type != "CERTIFICATE REQUEST" || len(strings.TrimSpace(string(rest))) > 0 {
		return nil, errors.New("the request is not PEM with one certificate request")
	}
	asked, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return nil, err
	}
	return asked, asked.CheckSignature()
}

// machineNames returns the names and addresses of a node's machine: the cloud's, or, if there is no cloud, the node's name
// and the addresses of its own status, which are no proof.
func machineNames(name string, nodes []Node, known cloud) ([]string, []netip.Addr, error) {
	i := slices.IndexFunc(nodes, func(n Node) bool { return n.Name == name })
	if i < 0 {
		return nil, nil, fmt.Errorf("node %s does not exist (yet)", name)
	}
	if known.none {
		return []string{name}, nodes[i].Addresses, nil
	}
	machine, ok := known.find(name)
	if !ok || machine.Gone {
		return nil, nil, fmt.Errorf("no running instance has the private DNS name or the id %s", name)
	}
	if machine.ID != nodes[i].Instance || !machine.Roles.Has(role.Minions) {
		return nil, nil, fmt.Errorf("instance %s has this name, and it is not the node's (%q), or no minion", machine.ID, nodes[i].Instance)
	}
	// The public name too: the cloud's controller writes it to the node, and the kubelet asks for all that its node has. A machine
	// without one has an empty one, which is no name.
	names := slices.DeleteFunc([]string{name, machine.Name, machine.PublicName}, func(n string) bool { return n == "" })
	return names, machine.Addresses, nil
}

// within reports names or addresses of a request that are not in those lists.
func within(asked *x509.CertificateRequest, names []string, addresses []netip.Addr) error {
	if len(asked.EmailAddresses)+len(asked.URIs) > 0 {
		return errors.New("the request has e-mail addresses or URIs")
	}
	if len(asked.DNSNames)+len(asked.IPAddresses) == 0 {
		return errors.New("the request has no names and no addresses")
	}
	for _, n := range asked.DNSNames {
		if !slices.Contains(names, n) {
			return fmt.Errorf("the name %s is not one of the machine's: %v", n, names)
		}
	}
	for _, ip := range asked.IPAddresses {
		a, ok := netip.AddrFromSlice(ip)
		if !ok || !slices.Contains(addresses, a.Unmap()) {
			return fmt.Errorf("the address %s is not one of the machine's: %v", ip, addresses)
		}
	}
	return nil
}
