package control

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// Who kubelets are, as the API server's Node authorizer has it.
const (
	userPrefix = "system:node:"
	nodesGroup = "system:nodes"
)

// The usages of a kubelet's server certificate, kubernetes.io/kubelet-serving.
const serverAuth = "server auth"

var servingUsages = []string{"digital signature", "key encipherment", serverAuth}

// nodeOf is the node that asks.
func nodeOf(r Request) (string, bool) {
	name, ok := strings.CutPrefix(r.User, userPrefix)
	return name, ok && name != "" && slices.Contains(r.Groups, nodesGroup)
}

// approve decides about requests for serving certificates: a kubelet gets one for the names and addresses of its own
// machine and for nothing else. What is refused stays undecided, so that an operator may have another opinion.
func (c *Controller) approve(ctx context.Context, nodes []Node, requests []Request, known cloud) error {
	var errs []error
	seen := map[string]bool{}
	for _, r := range requests {
		err := judge(r, nodes, known)
		if err == nil {
			c.Log.Info("approving a node's server certificate", "request", r.Name, "user", r.User)
			errs = append(errs, c.Requests.Approve(ctx, r.Name, "the names and addresses are those of the node's own machine"))
			continue
		}
		seen[r.Name] = true
		if !c.told[r.Name] {
			c.Log.Warn("leaving a node's request for a server certificate undecided", "request", r.Name, "user", r.User, "why", err)
		}
	}
	c.told = seen
	return errors.Join(errs...)
}

// judge says what is wrong with a request.
func judge(r Request, nodes []Node, known cloud) error {
	name, ok := nodeOf(r)
	if !ok {
		return fmt.Errorf("%s is no node", r.User)
	}
	asked, err := parseRequest(r.PEM)
	if err != nil {
		return err
	}
	if asked.Subject.CommonName != r.User || !slices.Equal(asked.Subject.Organization, []string{nodesGroup}) {
		return fmt.Errorf("the subject %s is not the node's that asks", asked.Subject)
	}
	if !slices.Contains(r.Usages, serverAuth) {
		return fmt.Errorf("it is not for %q", serverAuth)
	}
	for _, u := range r.Usages {
		if !slices.Contains(servingUsages, u) {
			return fmt.Errorf("the usage %q is not a server's", u)
		}
	}
	names, addresses, err := own(name, nodes, known)
	if err != nil {
		return err
	}
	return within(asked, names, addresses)
}

func parseRequest(text []byte) (*x509.CertificateRequest, error) {
	block, rest := pem.Decode(text)
	if block == nil || block.Type != "CERTIFICATE REQUEST" || len(strings.TrimSpace(string(rest))) > 0 {
		return nil, errors.New("it is no PEM of one certificate request")
	}
	asked, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return nil, err
	}
	return asked, asked.CheckSignature()
}

// own are the names and addresses of a node's machine: the cloud's, and where there is none the node's word.
func own(name string, nodes []Node, known cloud) ([]string, []netip.Addr, error) {
	i := slices.IndexFunc(nodes, func(n Node) bool { return n.Name == name })
	if i < 0 {
		return nil, nil, fmt.Errorf("there is no node %s (yet)", name)
	}
	if known.none {
		return append([]string{name}, nodes[i].Names...), nodes[i].Addresses, nil
	}
	machine, ok := known.find(name)
	if !ok || machine.Gone {
		return nil, nil, fmt.Errorf("no running instance has the private DNS name or the id %s", name)
	}
	return []string{name, machine.Name}, machine.Addresses, nil
}

// within reports names of a request that are not among those.
func within(asked *x509.CertificateRequest, names []string, addresses []netip.Addr) error {
	if len(asked.EmailAddresses)+len(asked.URIs) > 0 {
		return errors.New("it is for e-mail addresses or URIs, which no machine has")
	}
	if len(asked.DNSNames)+len(asked.IPAddresses) == 0 {
		return errors.New("it is for no name and no address")
	}
	for _, n := range asked.DNSNames {
		if !slices.Contains(names, n) {
			return fmt.Errorf("the name %s is not the machine's: %v", n, names)
		}
	}
	for _, ip := range asked.IPAddresses {
		a, ok := netip.AddrFromSlice(ip)
		if !ok || !slices.Contains(addresses, a.Unmap()) {
			return fmt.Errorf("the address %s is not the machine's: %v", ip, addresses)
		}
	}
	return nil
}
