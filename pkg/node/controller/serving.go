package controller

import (
	"crypto/x509"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// Reserved has what belongs to the cluster itself, and so never to a kubelet's certificate. Zero fields reserve nothing.
type Reserved struct {
	// Cluster is the cluster's name: the records of its roles are below <cluster>.k8s.
	Cluster string
	// DNSDomain is the domain of Services, and Services their range.
	DNSDomain string
	Services  netip.Prefix
	// API are additional names and addresses of the API server.
	API []string
}

// Self is the controller's own machine.
type Self struct {
	// Node is the name of its node; "" if it is none.
	Node      string
	Addresses []netip.Addr
}

// free returns why names or addresses of a request are not the machine's to have, or nil. It holds for every node,
// whatever the node or the cloud says of it.
func (r Reserved) free(asked *x509.CertificateRequest) error {
	for _, n := range asked.DNSNames {
		if owner := r.owner(n); owner != "" {
			return fmt.Errorf("the name %s is %s", n, owner)
		}
	}
	for _, ip := range asked.IPAddresses {
		a, _ := netip.AddrFromSlice(ip)
		a = a.Unmap()
		switch {
		case !a.IsGlobalUnicast(): // loopback, link-local (the metadata service), multicast, unspecified
			return fmt.Errorf("the address %s is no machine's", a)
		case r.Services.Contains(a):
			return fmt.Errorf("the address %s is a Service's: it is in %s", a, r.Services)
		case slices.ContainsFunc(r.API, func(s string) bool { have, err := netip.ParseAddr(s); return err == nil && have.Unmap() == a }):
			return fmt.Errorf("the address %s is the API server's", a)
		}
	}
	return nil
}

// owner says whose a reserved name is; "" if it is not reserved.
func (r Reserved) owner(name string) string {
	name = strings.ToLower(strings.TrimSuffix(name, "."))
	below := func(domain string) bool {
		return domain != "" && (name == domain || strings.HasSuffix(name, "."+domain))
	}
	first, _, _ := strings.Cut(name, ".")
	switch {
	case r.Cluster != "" && below(role.Domain(r.Cluster)):
		return "one of the cluster's records"
	case below(r.DNSDomain):
		return "a Service's"
	case first == "kubernetes", slices.ContainsFunc(r.API, func(s string) bool { return strings.EqualFold(s, name) }):
		return "the API server's"
	case below("localhost"):
		return "every machine's own"
	}
	return ""
}

// proven returns why a request may not have addresses that only the node itself says it has, or nil. Any node can say
// that it has a master's address, or another node's. Only the controller of that very master knows better; those of the
// other masters leave the request to it.
func (s Self) proven(asked *x509.CertificateRequest, node string, nodes []Node, masters []netip.Addr) error {
	for _, ip := range asked.IPAddresses {
		a, _ := netip.AddrFromSlice(ip)
		a = a.Unmap()
		if s.Node == node && slices.Contains(s.Addresses, a) {
			continue
		}
		if slices.Contains(masters, a) {
			return fmt.Errorf("the address %s is a master's: only that master approves it, for its own node", a)
		}
		for _, n := range nodes {
			if n.Name != node && slices.Contains(n.Addresses, a) {
				return fmt.Errorf("node %s has the address %s too: delete that node if its machine is gone", n.Name, a)
			}
		}
	}
	return nil
}
