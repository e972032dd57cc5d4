package controller_test

import (
	"crypto/x509"
	"net"
	"net/netip"
	"testing"

	"github.com/hardtack/packer-plugin-hardtack/pkg/node/controller"
)

func reserved() controller.Reserved {
	return controller.Reserved{Cluster: "demo", DNSDomain: "cluster.local", Services: netip.MustParsePrefix("10.96.0.0/16"), API: []string{"api.example.org", "203.0.113.7"}}
}

// evil is a node that says of itself whatever is asked for.
func evil(names, addresses []string) controller.Node {
	n := controller.Node{Name: name11, UID: "evil", Names: append([]string{name11}, names...)}
	for _, a := range append([]string{"10.1.0.11"}, addresses...) {
		n.Addresses = append(n.Addresses, netip.MustParseAddr(a))
	}
	return n
}

// decide lets the controller decide the request of the node for those names and addresses, where there is no cloud.
func decide(t *testing.T, w *world, c *controller.Controller, names, addresses []string) bool {
	t.Helper()
	w.approved, w.reasons = nil, map[string]string{}
	w.requests = []controller.Request{request(t, func(r *x509.CertificateRequest, _ *controller.Request) {
		r.DNSNames, r.IPAddresses = names, nil
		for _, a := range addresses {
			r.IPAddresses = append(r.IPAddresses, net.ParseIP(a))
		}
	})}
	c.Reserved = reserved()
	if err := c.Reconcile(t.Context()); err != nil {
		t.Fatal(err)
	}
	if len(w.approved)+len(w.reasons) != 1 {
		t.Errorf("of one request, %v were approved, and the others are undecided because of %v", w.approved, w.reasons)
	}
	return len(w.approved) == 1
}

// TestServingAttack is a node without a cloud that asks for a certificate as the API server, as a Service, as a master and
// as another node, and that says in its own status that it is all of them.
func TestServingAttack(t *testing.T) {
	for _, name := range []string{"masters.demo.k8s", "etcd-a.demo.k8s", "demo.k8s", "MASTERS.demo.k8s", "kubernetes", "kubernetes.default.svc",
		"kubernetes.default.svc.cluster.local", "dns.kube-system.svc.cluster.local", "localhost", "api.example.org", name10, "www.example.org"} {
		w := newWorld(node(name10, "", "10.1.0.12", true), evil([]string{name}, nil))
		if decide(t, w, w.controller(false), []string{name}, []string{"10.1.0.11"}) {
			t.Errorf("it gets the name %s", name)
		}
		// A node may also be called so.
		as := evil(nil, nil)
		as.Name = name
		w = newWorld(as)
		c := w.controller(false)
		w.requests = []controller.Request{request(t, func(r *x509.CertificateRequest, asker *controller.Request) {
			asker.User = "system:node:" + name
			r.Subject.CommonName, r.DNSNames = asker.User, []string{name}
		})}
		c.Reserved = reserved()
		if err := c.Reconcile(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got, want := len(w.approved) == 1, name == name10 || name == "www.example.org"; got != want {
			t.Errorf("a node called %s: approved %v, want %v", name, got, want)
		}
	}
	for _, address := range []string{"10.1.0.10", "10.1.0.12", "10.96.0.1", "10.96.200.3", "203.0.113.7", "127.0.0.1", "::1", "169.254.169.254", "0.0.0.0", "::ffff:10.96.0.1"} {
		w := newWorld(node(name10, "", "10.1.0.12", true), evil(nil, []string{address}))
		if decide(t, w, w.controller(false), []string{name11}, []string{"10.1.0.11", address}) {
			t.Errorf("it gets the address %s", address)
		}
	}
	// What it may have is its own.
	w := newWorld(node(name10, "", "10.1.0.12", true), evil(nil, nil))
	if !decide(t, w, w.controller(false), []string{name11}, []string{"10.1.0.11"}) {
		t.Error("it does not get its own name and address")
	}
}

// TestServingOfMaster is a master that is a node too. Its own controller knows its addresses; the others leave it alone.
func TestServingOfMaster(t *testing.T) {
	both := node(name11, "", "10.1.0.10", true)
	self := func(name, address string) func() (controller.Self, error) {
		return func() (controller.Self, error) {
			return controller.Self{Node: name, Addresses: []netip.Addr{netip.MustParseAddr(address)}}, nil
		}
	}
	for name, tt := range map[string]struct {
		self func() (controller.Self, error)
		want bool
	}{
		"its own":                  {self(name11, "10.1.0.10"), true},
		"another's":                {self(name10, "10.1.0.12"), false},
		"no node's":                {self("", "10.1.0.12"), false},
		"its own, of another name": {self(name10, "10.1.0.10"), false},
	} {
		w := newWorld(both)
		c := w.controller(false)
		c.Self = tt.self
		if got := decide(t, w, c, []string{name11}, []string{"10.1.0.10"}); got != tt.want {
			t.Errorf("%s controller: approved %v, want %v", name, got, tt.want)
		}
	}
}

// TestServingByCloud: the cloud has the last word about addresses, so that a node that lies about its own takes none away
// from another. What belongs to the cluster stays the cluster's.
func TestServingByCloud(t *testing.T) {
	liar := node(name10, "i-10", "10.1.0.12", true)
	liar.Addresses = append(liar.Addresses, netip.MustParseAddr("10.1.0.11"))
	w := newWorld(liar, node(name11, "i-11", "10.1.0.11", true))
	w.instances = []controller.Instance{instance("i-10", name10, "10.1.0.12"), instance("i-11", name11, "10.1.0.11")}
	if !decide(t, w, w.controller(true), []string{name11}, []string{"10.1.0.11"}) {
		t.Error("a node that lies takes the address away from the one that has it")
	}
	// What the cloud's controller writes to the node, the kubelet asks for too.
	const public = "ec2-198-51-100-1.eu-central-1.compute.amazonaws.com"
	names, addresses := []string{name11, public}, []string{"10.1.0.11", "198.51.100.1"}
	if decide(t, w, w.controller(true), names, addresses) {
		t.Error("a node gets a public name and address of nobody")
	}
	if decide(t, w, w.controller(true), []string{""}, []string{"10.1.0.11"}) {
		t.Error("a node gets an empty name")
	}
	w.instances[1].PublicName, w.instances[1].Addresses = public, append(w.instances[1].Addresses, netip.MustParseAddr("198.51.100.1"))
	if !decide(t, w, w.controller(true), names, addresses) {
		t.Errorf("a node does not get the public name and address of its machine: %v", w.reasons)
	}
	w.instances[1].Addresses = append(w.instances[1].Addresses, netip.MustParseAddr("10.96.0.1"))
	if decide(t, w, w.controller(true), []string{name11}, []string{"10.96.0.1"}) {
		t.Error("an instance gets the address of a Service")
	}
}
