package controller_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/node/controller"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// world is a cluster, its store and its cloud, as the controller sees them.
type world struct {
	mu        sync.Mutex // of what is written for several nodes at once
	nodes     map[string]controller.Node
	requests  []controller.Request
	masters   []netip.Addr
	instances []controller.Instance
	// asked are the names that the cloud was asked for.
	asked    []string
	approved []string
	objects  map[string]map[string]any
	secrets  map[string][]byte
	// events are the writes in their order.
	events []string
	down   error
	// tokens are those of single machines, and raced the calls of Use that another master was faster than.
	tokens []controller.MachineToken
	raced  int
	// reasons are those of the requests that stay undecided, by name.
	reasons map[string]string
}

func newWorld(nodes ...controller.Node) *world {
	w := &world{reasons: map[string]string{}, nodes: map[string]controller.Node{}, objects: map[string]map[string]any{}, secrets: map[string][]byte{},
		masters: []netip.Addr{netip.MustParseAddr("10.1.0.10")}}
	for _, n := range nodes {
		w.nodes[n.Name] = n
	}
	return w
}

func (w *world) Nodes(context.Context) ([]controller.Node, error) {
	return slices.SortedFunc(maps.Values(w.nodes), func(a, b controller.Node) int { return strings.Compare(a.Name, b.Name) }), w.down
}

func (w *world) Label(_ context.Context, node string, labels map[string]string) error {
	n := w.nodes[node]
	n.Labels = maps.Clone(n.Labels)
	if n.Labels == nil {
		n.Labels = map[string]string{}
	}
	maps.Copy(n.Labels, labels)
	w.nodes[node] = n
	return nil
}

func (w *world) Remove(_ context.Context, n controller.Node) error {
	if w.nodes[n.Name].UID == n.UID {
		delete(w.nodes, n.Name)
	}
	return nil
}

func (w *world) Tell(_ context.Context, n controller.Node, a controller.Answer) error {
	now, ok := w.nodes[n.Name]
	if !ok || now.UID != n.UID {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	now.Answer = a
	w.nodes[n.Name] = now
	w.events = append(w.events, "told "+n.Name)
	return w.down
}

func (w *world) Masters(context.Context) ([]netip.Addr, error)          { return w.masters, nil }
func (w *world) Requests(context.Context) ([]controller.Request, error) { return w.requests, nil }

func (w *world) Approve(_ context.Context, name, _ string) error {
	w.events = append(w.events, "approved "+name)
	w.approved = append(w.approved, name)
	w.requests = slices.DeleteFunc(w.requests, func(r controller.Request) bool { return r.Name == name })
	return nil
}

func (w *world) Undecided(_ context.Context, name, why string) error {
	w.reasons[name] = why
	return nil
}

func (w *world) Watch(ctx context.Context, _ func()) error {
	<-ctx.Done()
	return ctx.Err()
}

func (w *world) Apply(_ context.Context, object map[string]any) error {
	name := object["metadata"].(map[string]any)["name"].(string)
	w.objects[name] = object
	w.events = append(w.events, "api "+name)
	return w.down
}

func (w *world) Tokens(context.Context) ([]controller.MachineToken, error) {
	return slices.Clone(w.tokens), w.down
}

func (w *world) Use(_ context.Context, used controller.MachineToken) error {
	i := slices.IndexFunc(w.tokens, func(t controller.MachineToken) bool { return t.ID == used.ID && t.Version == used.Version })
	if w.raced--; w.raced >= 0 || i < 0 {
		return controller.ErrChanged
	}
	used.Version += "+"
	w.tokens[i] = used
	w.events = append(w.events, "used "+used.ID)
	return w.down
}

func (w *world) Get(_ context.Context, name string) ([]byte, error) {
	if data, ok := w.secrets[name]; ok {
		return data, nil
	}
	return nil, pki.ErrNotFound
}

func (w *world) Put(_ context.Context, name string, data []byte) error {
	w.secrets[name] = data
	w.events = append(w.events, "store "+name)
	return nil
}

// ec2 is the world's cloud.
type ec2 struct{ *world }

func (e ec2) Instances(_ context.Context, names []string) ([]controller.Instance, error) {
	e.asked = append(e.asked, names...)
	var out []controller.Instance
	for _, i := range e.instances {
		if slices.ContainsFunc(names, i.Is) {
			out = append(out, i)
		}
	}
	return out, nil
}

func (w *world) controller(cloud bool) *controller.Controller {
	c := &controller.Controller{Nodes: w, Requests: w, Objects: w, Tokens: w, Secrets: w, Now: time.Now,
		Self: func() (controller.Self, error) {
			return controller.Self{Node: name10, Addresses: w.masters[:1]}, nil
		}, Log: slog.New(slog.DiscardHandler)}
	if cloud {
		c.Instances = ec2{w}
	}
	return c
}

const (
	name10 = "ip-10-1-0-10.eu-central-1.compute.internal"
	name11 = "ip-10-1-0-11.eu-central-1.compute.internal"
)

func node(name, instance, addr string, ready bool) controller.Node {
	return controller.Node{Name: name, UID: "uid-" + name, Instance: instance, Ready: ready, Names: []string{name}, Addresses: []netip.Addr{netip.MustParseAddr(addr)}}
}

// instance is one of a group of minions.
func instance(id, name, addr string) controller.Instance {
	return controller.Instance{ID: id, Name: name, Addresses: []netip.Addr{netip.MustParseAddr(addr)}, Running: true,
		Group: "demo-minions", Roles: role.NewSet(role.Minions), Role: "demo-minions"}
}

// combined is one of a group of machines that are everything.
func combined(id, name, addr string) controller.Instance {
	i := instance(id, name, addr)
	i.Group, i.Roles, i.Role = "demo-masters", role.NewSet(role.All()...), "demo-masters"
	return i
}

func TestLabels(t *testing.T) {
	for _, cloud := range []bool{false, true} {
		w := newWorld(node(name10, "i-10", "10.1.0.10", true), node(name11, "i-11", "10.1.0.11", true))
		// The second says that it has the master's address.
		liar := w.nodes[name11]
		liar.Addresses = append(liar.Addresses, w.masters[0])
		w.nodes[name11] = liar
		// One by its whole private DNS name, one as the API names it that leaves the domain out.
		w.instances = []controller.Instance{combined("i-10", name10, "10.1.0.10"), instance("i-11", "ip-10-1-0-11", "10.1.0.11")}
		c := w.controller(cloud)
		if err := c.Reconcile(t.Context()); err != nil {
			t.Fatal(err)
		}
		labels := func(n string) []string { return slices.Sorted(maps.Keys(w.nodes[n].Labels)) }
		master := []string{"node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/masters", "node-role.kubernetes.io/minions"}
		if got := labels(name10); !slices.Equal(got, master) {
			t.Errorf("cloud %v: the master's labels are %v", cloud, got)
		}
		want := []string{"node-role.kubernetes.io/minions"}
		if got := labels(name11); !slices.Equal(got, want) {
			t.Errorf("cloud %v: the labels of who says to be a master are %v, want %v", cloud, got, want)
		}
	}
}

// TestRest asserts that a cluster at rest costs the cloud nothing.
func TestRest(t *testing.T) {
	w := newWorld(node(name10, "i-10", "10.1.0.10", true))
	w.instances = []controller.Instance{combined("i-10", name10, "10.1.0.10")}
	c := w.controller(true)
	if err := c.Reconcile(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.asked = nil
	if err := c.Reconcile(t.Context()); err != nil || len(w.asked) > 0 {
		t.Errorf("asked the cloud for %v, %v", w.asked, err)
	}
}

func TestRemove(t *testing.T) {
	gone := instance("i-3", "", "10.1.0.13")
	gone.Gone = true
	w := newWorld(
		node("lives", "i-1", "10.1.0.11", false), node("unknown", "i-2", "10.1.0.12", false), node("ended", "i-3", "10.1.0.13", false),
		node("reports", "i-4", "10.1.0.14", true), node("metal", "", "10.1.0.15", false))
	w.instances = []controller.Instance{instance("i-1", "lives", "10.1.0.11"), gone}
	if err := w.controller(true).Reconcile(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got, want := slices.Sorted(maps.Keys(w.nodes)), []string{"lives", "metal", "reports"}; !slices.Equal(got, want) {
		t.Errorf("nodes left are %v, want %v", got, want)
	}
	// Without a cloud it is unknown whether a machine comes back.
	w = newWorld(node("unknown", "i-2", "10.1.0.12", false))
	if err := w.controller(false).Reconcile(t.Context()); err != nil || len(w.nodes) != 1 {
		t.Errorf("nodes left are %v, %v", w.nodes, err)
	}
}

// TestLost: the machine of a node that is not Ready is looked up twice a minute and not at each turn, and its node goes within half
// a minute of its end. One that is Ready again meanwhile is looked up at once when it is lost again.
func TestLost(t *testing.T) {
	w := newWorld(node("joins", "i-1", "10.1.0.11", false))
	w.instances = []controller.Instance{instance("i-1", "joins", "10.1.0.11")}
	now := time.Unix(1e9, 0)
	c := w.controller(true)
	c.Now = func() time.Time { return now }
	turn := func() (asked int) {
		t.Helper()
		w.asked = nil
		if err := c.Reconcile(t.Context()); err != nil {
			t.Fatal(err)
		}
		now = now.Add(5 * time.Second)
		return min(1, len(w.asked))
	}
	turn() // it gets its label
	looks := 0
	for range 12 {
		looks += turn()
	}
	if looks != 2 || len(w.nodes) != 1 {
		t.Errorf("looked %d times in a minute, want 2; the nodes are %v", looks, w.nodes)
	}
	set := func(ready bool) {
		n := w.nodes["joins"]
		n.Ready = ready
		w.nodes["joins"] = n
	}
	set(true)
	if looks := turn(); looks != 0 {
		t.Error("looked for the machine of a node that is Ready")
	}
	set(false)
	if looks := turn(); looks != 1 {
		t.Error("did not look for the machine of a node that was lost a moment ago")
	}
	w.instances[0].Gone = true
	for range 6 {
		turn()
	}
	if len(w.nodes) != 0 {
		t.Errorf("half a minute after the machine's end the nodes are %v", w.nodes)
	}
}

// request is a kubelet's, changed by some.
func request(t *testing.T, change func(*x509.CertificateRequest, *controller.Request)) controller.Request {
	t.Helper()
	r := controller.Request{Name: "csr-1", UID: "csr-1", Signer: controller.SignerServing, User: "system:node:" + name11, Groups: []string{"system:nodes", "system:authenticated"},
		Usages: []string{"digital signature", "server auth"}}
	template := &x509.CertificateRequest{
		Subject:  pkix.Name{Organization: []string{"system:nodes"}, CommonName: r.User},
		DNSNames: []string{name11}, IPAddresses: []net.IP{net.ParseIP("10.1.0.11")},
	}
	if change != nil {
		change(template, &r)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, template, key)
	if err != nil {
		t.Fatal(err)
	}
	if r.PEM == nil {
		r.PEM = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})
	}
	return r
}

func TestApprove(t *testing.T) {
	type change = func(*x509.CertificateRequest, *controller.Request)
	for name, test := range map[string]struct {
		change change
		want   bool
	}{
		"its own":           {nil, true},
		"only an address":   {func(c *x509.CertificateRequest, _ *controller.Request) { c.DNSNames = nil }, true},
		"another's name":    {func(c *x509.CertificateRequest, _ *controller.Request) { c.DNSNames = append(c.DNSNames, name10) }, false},
		"another's address": {func(c *x509.CertificateRequest, _ *controller.Request) { c.IPAddresses[0] = net.ParseIP("10.1.0.10") }, false},
		"the API's name":    {func(c *x509.CertificateRequest, _ *controller.Request) { c.DNSNames = []string{"masters.demo.k8s"} }, false},
		"no name":           {func(c *x509.CertificateRequest, _ *controller.Request) { c.DNSNames, c.IPAddresses = nil, nil }, false},
		"a URI": {func(c *x509.CertificateRequest, _ *controller.Request) {
			c.URIs = []*url.URL{{Scheme: "spiffe", Host: "x"}}
		}, false},
		"an e-mail address": {func(c *x509.CertificateRequest, _ *controller.Request) { c.EmailAddresses = []string{"a@example.org"} }, false},
		"another's subject": {func(c *x509.CertificateRequest, _ *controller.Request) {
			c.Subject.CommonName = "system:node:" + name10
		}, false},
		"more organizations": {func(c *x509.CertificateRequest, _ *controller.Request) {
			c.Subject.Organization = append(c.Subject.Organization, "system:masters")
		}, false},
		"for clients":     {func(_ *x509.CertificateRequest, r *controller.Request) { r.Usages = append(r.Usages, "client auth") }, false},
		"not for servers": {func(_ *x509.CertificateRequest, r *controller.Request) { r.Usages = []string{"digital signature"} }, false},
		"no node": {func(_ *x509.CertificateRequest, r *controller.Request) {
			r.User, r.Groups = "mallory", []string{"system:authenticated"}
		}, false},
		"not in the group": {func(_ *x509.CertificateRequest, r *controller.Request) { r.Groups = []string{"system:authenticated"} }, false},
		"rubbish":          {func(_ *x509.CertificateRequest, r *controller.Request) { r.PEM = []byte("rubbish") }, false},
	} {
		for _, cloud := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				w := newWorld(node(name10, "i-10", "10.1.0.10", true), node(name11, "i-11", "10.1.0.11", true))
				w.instances = []controller.Instance{instance("i-10", name10, "10.1.0.10"), instance("i-11", name11, "10.1.0.11")}
				w.requests = []controller.Request{request(t, test.change)}
				if err := w.controller(cloud).Reconcile(t.Context()); err != nil {
					t.Fatal(err)
				}
				if got := len(w.approved) == 1; got != test.want {
					t.Errorf("cloud %v: approved %v, want %v", cloud, got, test.want)
				}
			})
		}
	}
}

// TestApproveByCloud asserts that a node's word about itself counts for nothing where the cloud can be asked.
func TestApproveByCloud(t *testing.T) {
	liar := node(name11, "i-11", "10.1.0.11", true)
	liar.Addresses = append(liar.Addresses, netip.MustParseAddr("10.1.0.10"))
	w := newWorld(liar)
	w.instances = []controller.Instance{instance("i-11", name11, "10.1.0.11")}
	w.requests = []controller.Request{request(t, func(c *x509.CertificateRequest, _ *controller.Request) {
		c.IPAddresses = append(c.IPAddresses, net.ParseIP("10.1.0.10"))
	})}
	if err := w.controller(true).Reconcile(t.Context()); err != nil || len(w.approved) > 0 {
		t.Errorf("approved %v, %v", w.approved, err)
	}
	// A machine that has ended gets nothing either.
	w.instances[0].Gone = true
	w.requests = []controller.Request{request(t, nil)}
	if err := w.controller(true).Reconcile(t.Context()); err != nil || len(w.approved) > 0 {
		t.Errorf("approved %v for a machine that is gone, %v", w.approved, err)
	}
}

func TestToken(t *testing.T) {
	w := newWorld()
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	c := w.controller(false)
	c.Now = func() time.Time { return now }
	look := func(after time.Duration) pki.Token {
		t.Helper()
		now = now.Add(after)
		if err := c.Token(t.Context()); err != nil {
			t.Fatal(err)
		}
		token, err := pki.ParseToken(w.secrets[pki.BootstrapToken])
		if err != nil {
			t.Fatal(err)
		}
		return token
	}
	first := look(0)
	if !strings.HasPrefix(w.events[0], "api ") || w.events[1] != "store "+pki.BootstrapToken {
		t.Errorf("events are %v: the API server is to know a token before machines do", w.events)
	}
	secret := w.objects["bootstrap-token-"+first.ID]["data"].(map[string]any)
	for key, want := range map[string]string{"token-secret": first.Secret, "expiration": "2026-11-22T12:00:00Z", "auth-extra-groups": pki.GroupBootstrappers} {
		if got, err := base64.StdEncoding.DecodeString(secret[key].(string)); err != nil || string(got) != want {
			t.Errorf("%s is %q, %v, want %q", key, got, err, want)
		}
	}
	w.objects = map[string]map[string]any{} // an API server that has lost its data
	if again := look(11 * time.Hour); again != first || len(w.objects) != 1 {
		t.Errorf("the token is another at less than half its life, or the API server was not told: %v, %v", again, w.objects)
	}
	if next := look(2 * time.Hour); next.ID == first.ID || next.Expires.Sub(now) != pki.TokenLife {
		t.Errorf("the token is still %v after half its life", next)
	}
	w.secrets[pki.BootstrapToken] = []byte("rubbish")
	look(0)
}

func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.down = errors.New("connection refused")
		ctx, cancel := context.WithCancel(t.Context())
		isReady, ended := false, make(chan error)
		c := w.controller(false)
		go func() { ended <- c.Run(ctx, func() { isReady = true }) }()
		time.Sleep(time.Minute)
		synctest.Wait()
		if isReady || w.secrets[pki.BootstrapToken] != nil {
			t.Error("it is ready, or gave a token out, while the API server is away")
		}
		w.down = nil
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if !isReady || w.secrets[pki.BootstrapToken] == nil {
			t.Error("it is not ready, or there is no token, with an API server")
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
