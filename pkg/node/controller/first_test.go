package controller_test

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/aws/aws-sdk-go-v2/credentials"

	"github.com/hardtack/packer-plugin-hardtack/pkg/awsfake"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/controller"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/identity"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

const (
	master = "i-00000000000000010"
	minion = "i-00000000000000011"
	other  = "i-00000000000000012"
	name12 = "ip-10-1-0-12.eu-central-1.compute.internal"
)

// land is a world with STS: a master that is no node, and two minions.
type land struct {
	*world
	account *awsfake.Account
	url     string
	c       *controller.Controller
	log     bytes.Buffer
}

func newLand(t *testing.T, nodes ...controller.Node) *land {
	t.Helper()
	l := &land{world: newWorld(nodes...), account: awsfake.New(awsfake.Options{})}
	server := httptest.NewServer(l.account.Handler())
	t.Cleanup(server.Close)
	l.url = server.URL
	for _, name := range []string{"demo-masters", "demo-minions", "other-minions"} {
		l.account.AddRole(name)
	}
	m := instance(master, name10, "10.1.0.10")
	m.Group, m.Roles, m.Role = "demo-masters", role.NewSet(role.Masters, role.Etcd), "demo-masters"
	l.instances = []controller.Instance{m, instance(minion, name11, "10.1.0.11"), instance(other, name12, "10.1.0.12")}
	l.c = l.newController(t)
	return l
}

func (l *land) newController(t *testing.T) *controller.Controller {
	t.Helper()
	c := l.controller(true)
	c.Log = slog.New(slog.NewTextHandler(&l.log, nil))
	c.Identities = &identity.Verifier{Cluster: "demo", Now: func() time.Time { return c.Now() },
		Load: func(context.Context) (aws.Config, error) { return l.config(t, "demo-masters", master), nil }}
	return c
}

// config is the SDK's configuration of a session of a role, on a machine of the cluster's region.
func (l *land) config(t *testing.T, name, session string) aws.Config {
	t.Helper()
	k, err := l.account.Issue(name, session, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	return aws.Config{Region: "eu-central-1", BaseEndpoint: &l.url, Credentials: credentials.NewStaticCredentialsProvider(k.AccessKey, k.Secret, k.Token)}
}

func (l *land) prove(t *testing.T, c aws.Config, cluster string, r controller.Request, at time.Time) string {
	t.Helper()
	proof, err := identity.Prove(t.Context(), c, cluster, der(t, r), at)
	if err != nil {
		t.Fatal(err)
	}
	return proof
}

func der(t *testing.T, r controller.Request) []byte {
	t.Helper()
	block, _ := pem.Decode(r.PEM)
	if block == nil {
		t.Fatal("no PEM")
	}
	return block.Bytes
}

// first is a machine's request for the certificate of a node, by the token, without a proof.
func first(t *testing.T, name string, change func(*x509.CertificateRequest, *controller.Request)) controller.Request {
	t.Helper()
	return request(t, func(c *x509.CertificateRequest, r *controller.Request) {
		*r = controller.Request{Name: "csr-" + name, UID: "uid-" + name, Signer: controller.SignerClient, User: "system:bootstrap:abcdef",
			Groups: []string{"system:bootstrappers", pki.GroupBootstrappers, "system:authenticated"}, Usages: []string{"digital signature", "client auth"}}
		c.Subject.CommonName, c.DNSNames, c.IPAddresses = "system:node:"+name, nil, nil
		if change != nil {
			change(c, r)
		}
	})
}

// changed returns a proof with some of its parameters changed.
func changed(t *testing.T, proof string, change func(u *url.URL, q url.Values)) string {
	t.Helper()
	u, err := url.Parse(proof)
	if err != nil {
		t.Fatal(err)
	}
	q := u.Query()
	change(u, q)
	u.RawQuery = q.Encode()
	return u.String()
}

func with(name, value string) func(*url.URL, url.Values) {
	return func(_ *url.URL, q url.Values) { q.Set(name, value) }
}

// presign signs a call of STS as an attacker likes it: with the headers of the request, and any parameters.
func (l *land) presign(t *testing.T, c aws.Config, parameters url.Values, header http.Header) string {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, l.url+"/?"+parameters.Encode(), nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header = header
	k, err := c.Credentials.Retrieve(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	const nothing = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
	proof, _, err := v4.NewSigner().PresignHTTP(t.Context(), k, r, nothing, "sts", c.Region, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return proof
}

// TestFirstCertificate has a minion that joins, and every way to a certificate that an attacker with the token, or with a
// minion, may try. asks is how many calls to STS the request costs beside the masters' own first one.
func TestFirstCertificate(t *testing.T) {
	for name, tt := range map[string]struct {
		node   string // whose certificate is asked for; "" is the minion's
		change func(*x509.CertificateRequest, *controller.Request)
		proof  proofOf // nil is the minion's own
		world  func(l *land)
		asks   int
		want   string // in the reason; "" is approved
	}{
		"a minion":                  {asks: 1},
		"by an id":                  {node: minion, asks: 1},
		"by the name's first label": {node: "ip-10-1-0-11", asks: 1},
		"again, after a reboot":     {asks: 1, world: func(l *land) { l.nodes[name11] = node(name11, minion, "10.1.0.11", true) }},
		"in place of a machine that is gone": {asks: 1, world: func(l *land) {
			l.nodes[name11] = node(name11, "i-0000000000000dead", "10.1.0.11", false)
		}},

		"the token alone":                     {proof: func(*testing.T, *land, controller.Request) string { return "" }, want: "no proof"},
		"another instance's name":             {node: name12, asks: 1, want: "asks for the node " + name12},
		"the name of a master":                {node: name10, asks: 1, want: "asks for the node " + name10},
		"any name":                            {node: "victim", asks: 1, want: "asks for the node victim"},
		"its own in another domain":           {node: "ip-10-1-0-11.attacker.example", asks: 1, want: "asks for the node"},
		"a master's proof":                    {node: name10, asks: 1, want: "no group of the cluster with the role minions", proof: by("demo-masters", master, "demo", 0)},
		"proof of another request":            {asks: 1, want: "SignatureDoesNotMatch", proof: ofAnother},
		"proof for another cluster":           {asks: 1, want: "SignatureDoesNotMatch", proof: by("demo-minions", minion, "other", 0)},
		"another cluster's role":              {asks: 1, want: "the machines of the group demo-minions have demo-minions", proof: by("other-minions", minion, "demo", 0)},
		"another cluster's machine":           {asks: 1, want: "is not one of the cluster's", proof: by("demo-minions", "i-00000000000000099", "demo", 0)},
		"a session that is no instance":       {asks: 1, want: "is not an instance of account", proof: by("demo-minions", "mallory", "demo", 0)},
		"a user":                              {want: "lacks parameters", proof: byUser},
		"a machine outside the groups":        {asks: 1, want: "no group of the cluster", world: func(l *land) { l.instances[1].Group, l.instances[1].Roles = "", nil }},
		"a group without the tag":             {asks: 1, want: "has no tag InstanceRole", world: func(l *land) { l.instances[1].Role = "" }},
		"a machine that ends":                 {asks: 1, want: "does not run", world: func(l *land) { l.instances[1].Running, l.instances[1].Gone = false, true }},
		"the name of a living machine":        {asks: 1, want: "is there and Ready", world: func(l *land) { l.nodes[name11] = node(name11, other, "10.1.0.11", true) }},
		"the name of a sick machine":          {asks: 1, want: "which is not gone", world: func(l *land) { l.nodes[name11] = node(name11, other, "10.1.0.11", false) }},
		"the name of a machine without an id": {asks: 1, want: "which is not gone", world: func(l *land) { l.nodes[name11] = node(name11, "", "10.1.0.11", false) }},

		"a foreign host":                {want: "only http", proof: elsewhere(func(u *url.URL, _ url.Values) { u.Host = "attacker.example" })},
		"a foreign port":                {want: "only http", proof: elsewhere(func(u *url.URL, _ url.Values) { u.Host = "127.0.0.1:1" })},
		"https to the metadata service": {want: "only http", proof: elsewhere(func(u *url.URL, _ url.Values) { u.Scheme, u.Host = "https", "169.254.169.254" })},
		"a user in the URL":             {want: "only http", proof: elsewhere(func(u *url.URL, _ url.Values) { u.User = url.User("sts.amazonaws.com") })},
		"a path":                        {want: "only http", proof: elsewhere(func(u *url.URL, _ url.Values) { u.Path = "/x" })},
		"another action":                {want: `Action="AssumeRole"`, proof: elsewhere(with("Action", "AssumeRole"))},
		"another version":               {want: `Version="2010-05-08"`, proof: elsewhere(with("Version", "2010-05-08"))},
		"one parameter more":            {want: `"RoleArn"`, proof: elsewhere(with("RoleArn", "arn:aws:iam::123456789012:role/admin"))},
		"a parameter twice": {want: "twice", proof: elsewhere(func(_ *url.URL, q url.Values) {
			q.Add("Action", "AssumeRole")
		})},
		"another region": {want: "not signed for sts in eu-central-1", proof: elsewhere(func(_ *url.URL, q url.Values) {
			q.Set("X-Amz-Credential", strings.Replace(q.Get("X-Amz-Credential"), "eu-central-1", "us-east-1", 1))
		})},
		"a header not signed": {want: "X-Amz-SignedHeaders", proof: elsewhere(with("X-Amz-SignedHeaders", "host;x-hardtack-cluster"))},
		"a day's life":        {want: "at most 300", proof: elsewhere(with("X-Amz-Expires", "86400"))},
		"a forged signature":  {asks: 1, want: "SignatureDoesNotMatch", proof: elsewhere(with("X-Amz-Signature", strings.Repeat("a", 64)))},
		"rubbish":             {want: "is not a URL", proof: func(*testing.T, *land, controller.Request) string { return "http://[" }},
		"very long":           {want: "over 8192", proof: elsewhere(with("X-Amz-Security-Token", strings.Repeat("a", 9000)))},
		"expired":             {want: "expired at", proof: by("demo-minions", minion, "demo", -6*time.Minute)},
		"of tomorrow":         {want: "to come", proof: by("demo-minions", minion, "demo", 24*time.Hour)},
		// STS is content with these two, which any program may have signed for another purpose: the verifier is not.
		"signed for somebody else": {want: "X-Amz-SignedHeaders", proof: plainly(http.Header{})},
		"signed with one header":   {want: "X-Amz-SignedHeaders", proof: plainly(http.Header{"X-Hardtack-Cluster": {"demo"}})},

		"without the token": {want: "does not come with a bootstrap token", change: func(_ *x509.CertificateRequest, r *controller.Request) { r.Groups = []string{"system:authenticated"} }},
		"another group": {want: "is not a node's", change: func(c *x509.CertificateRequest, _ *controller.Request) {
			c.Subject.Organization = []string{"system:masters"}
		}},
		"one group more": {want: "is not a node's", change: func(c *x509.CertificateRequest, _ *controller.Request) {
			c.Subject.Organization = append(c.Subject.Organization, "system:masters")
		}},
		"another user": {want: "is not a node's", change: func(c *x509.CertificateRequest, _ *controller.Request) { c.Subject.CommonName = "admin" }},
		"a unit":       {want: "is not a node's", change: func(c *x509.CertificateRequest, _ *controller.Request) { c.Subject.OrganizationalUnit = []string{"x"} }},
		"a name":       {want: "names or addresses", change: func(c *x509.CertificateRequest, _ *controller.Request) { c.DNSNames = []string{"masters.demo.k8s"} }},
		"an address":   {want: "names or addresses", change: func(c *x509.CertificateRequest, _ *controller.Request) { c.IPAddresses = []net.IP{{10, 1, 0, 10}} }},
		"for servers":  {want: "usages", change: func(_ *x509.CertificateRequest, r *controller.Request) { r.Usages = append(r.Usages, "server auth") }},
		"for nothing":  {want: "usages", change: func(_ *x509.CertificateRequest, r *controller.Request) { r.Usages = nil }},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLand(t)
			if tt.world != nil {
				tt.world(l)
			}
			if tt.node == "" {
				tt.node = name11
			}
			r := first(t, tt.node, tt.change)
			if tt.proof == nil {
				tt.proof = elsewhere(func(*url.URL, url.Values) {})
			}
			r.Proof = tt.proof(t, l, r)
			l.requests = []controller.Request{r}
			for range 3 {
				if err := l.c.Reconcile(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			if tt.want == "" != slices.Contains(l.approved, r.Name) || !strings.Contains(l.reasons[r.Name], tt.want) {
				t.Errorf("approved %v, reason %q, want %q", l.approved, l.reasons[r.Name], tt.want)
			}
			if got := max(0, l.account.Calls()["sts:GetCallerIdentity"]-1); got != tt.asks {
				t.Errorf("%d calls to STS, want %d", got, tt.asks)
			}
			if n := strings.Count(l.log.String(), "undecided"); n > 1 || n == 0 && tt.want != "" {
				t.Errorf("logged %d times:\n%s", n, l.log.String())
			}
			if text := l.log.String() + l.reasons[r.Name]; strings.Contains(text, "X-Amz-Security-Token=") {
				t.Errorf("the log or the reason has the session token:\n%s", text)
			}
		})
	}
}

// proofOf makes the proof of a request.
type proofOf = func(*testing.T, *land, controller.Request) string

// by is the proof by a session of a role, made that much later than now.
func by(name, session, cluster string, later time.Duration) proofOf {
	return func(t *testing.T, l *land, r controller.Request) string {
		t.Helper()
		return l.prove(t, l.config(t, name, session), cluster, r, time.Now().Add(later))
	}
}

// ofAnother is the minion's proof of another request.
func ofAnother(t *testing.T, l *land, _ controller.Request) string {
	t.Helper()
	return l.prove(t, l.config(t, "demo-minions", minion), "demo", first(t, name11, nil), time.Now())
}

// byUser is the proof by an IAM user that is called like the instance.
func byUser(t *testing.T, l *land, r controller.Request) string {
	t.Helper()
	u := l.account.AddUser(minion)
	return l.prove(t, aws.Config{Region: "eu-central-1", BaseEndpoint: &l.url, Credentials: credentials.NewStaticCredentialsProvider(u.AccessKey, u.Secret, "")}, "demo", r, time.Now())
}

// plainly is a presigned call by the minion for somebody else's purpose.
func plainly(header http.Header) proofOf {
	return func(t *testing.T, l *land, _ controller.Request) string {
		t.Helper()
		return l.presign(t, l.config(t, "demo-minions", minion), url.Values{"Action": {"GetCallerIdentity"}, "Version": {"2011-06-15"}, "X-Amz-Expires": {"300"}}, header)
	}
}

// elsewhere is the minion's own proof, changed.
func elsewhere(change func(*url.URL, url.Values)) proofOf {
	return func(t *testing.T, l *land, r controller.Request) string {
		t.Helper()
		return changed(t, l.prove(t, l.config(t, "demo-minions", minion), "demo", r, time.Now()), change)
	}
}

// TestCopiedProof copies the proof of a machine that joins to a request with another key.
func TestCopiedProof(t *testing.T) {
	l := newLand(t)
	good := first(t, name11, nil)
	good.Proof = l.prove(t, l.config(t, "demo-minions", minion), "demo", good, time.Now())
	bad := first(t, name11, nil)
	bad.Name, bad.UID, bad.Proof = "copy", "copy", good.Proof
	l.requests = []controller.Request{bad, good}
	if err := l.c.Reconcile(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(l.approved, []string{good.Name}) {
		t.Errorf("approved %v, want %s", l.approved, good.Name)
	}
}

// TestRedirect has an STS that sends the masters elsewhere, with and without a promising answer.
func TestRedirect(t *testing.T) {
	l := newLand(t)
	reached := false
	trap := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached = true }))
	t.Cleanup(trap.Close)
	calls := 0
	sts := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if calls++; calls == 1 { // the masters' own
			l.account.Handler().ServeHTTP(w, r)
			return
		}
		http.Redirect(w, r, trap.URL, http.StatusTemporaryRedirect)
	}))
	t.Cleanup(sts.Close)
	l.url = sts.URL
	r := first(t, name11, nil)
	r.Proof = l.prove(t, l.config(t, "demo-minions", minion), "demo", r, time.Now())
	l.requests = []controller.Request{r}
	if err := l.c.Reconcile(t.Context()); err != nil {
		t.Fatal(err)
	}
	if reached || len(l.approved) > 0 || !strings.Contains(l.reasons[r.Name], "307") {
		t.Errorf("reached %v, approved %v, %q", reached, l.approved, l.reasons[r.Name])
	}
}

// TestSTSAway has an STS that is throttled and out of order at first: the request is looked at again.
func TestSTSAway(t *testing.T) {
	faults := &awsfake.Script{}
	l := newLand(t)
	l.account.SetFaults(faults)
	faults.Add("GetCallerIdentity", awsfake.Fault{Refuse: awsfake.Throttled()}, awsfake.Fault{}, awsfake.Fault{LoseReply: true},
		awsfake.Fault{Refuse: &awsfake.Error{Status: 503, Code: "ServiceUnavailable"}})
	r := first(t, name11, nil)
	r.Proof = l.prove(t, l.config(t, "demo-minions", minion), "demo", r, time.Now())
	l.requests = []controller.Request{r}
	for range 6 {
		if err := l.c.Reconcile(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if !slices.Contains(l.approved, r.Name) {
		t.Errorf("approved %v, %q", l.approved, l.reasons[r.Name])
	}
}

// stsRate is how often an account may call STS in a region in a second, all of its calls together: IAM and AWS STS quotas, "AWS STS
// request quotas". A master looks every second while machines join.
const stsRate = 600

// TestTurns has three masters: a machine that joins costs one call to STS, a master that is gone is replaced, and what joins at once
// stays within STS's rate.
func TestTurns(t *testing.T) {
	for _, tt := range []struct {
		gone     bool
		machines int
	}{{false, 12}, {true, 12}, {false, 1000}} {
		l := newLand(t)
		l.masters = []netip.Addr{netip.MustParseAddr("10.1.0.10"), netip.MustParseAddr("10.2.0.10"), netip.MustParseAddr("10.3.0.10")}
		now := time.Now()
		var masters []*controller.Controller
		for _, self := range l.masters {
			c := l.newController(t)
			c.Self, c.Now = func() (controller.Self, error) { return controller.Self{Addresses: []netip.Addr{self}}, nil }, func() time.Time { return now }
			masters = append(masters, c)
		}
		l.instances = nil
		for i := range tt.machines {
			id := fmt.Sprintf("i-%017d", i)
			l.instances = append(l.instances, instance(id, fmt.Sprintf("m%d", i), "10.1.1.1"))
			r := first(t, fmt.Sprintf("m%d", i), nil)
			r.Proof = l.prove(t, l.config(t, "demo-minions", id), "demo", r, now)
			l.requests = append(l.requests, r)
		}
		if tt.gone {
			masters = masters[1:]
		}
		calls := func() int { return l.account.Calls()["sts:GetCallerIdentity"] }
		seconds, most := 0, 0
		for ; seconds < 60 && len(l.approved) < tt.machines; seconds++ {
			before := calls()
			for _, c := range masters {
				if err := c.Reconcile(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			now, most = now.Add(time.Second), max(most, calls()-before)
		}
		// Each master asks once who it is itself.
		if len(l.approved) != tt.machines || calls()-len(masters) > tt.machines || most > stsRate {
			t.Errorf("%+v: approved %d in %d s, with %d calls, at most %d in a second", tt, len(l.approved), seconds, calls()-len(masters), most)
		}
		t.Logf("%+v: %d s, %d calls, at most %d in a second", tt, seconds, calls()-len(masters), most)
	}
}

// TestFirstCome has no cloud: the first machine that asks for a name gets it, and as long as its node works no other.
func TestFirstCome(t *testing.T) {
	for name, tt := range map[string]struct {
		nodes []controller.Node
		want  bool
	}{
		"free":                     {nil, true},
		"a node that works":        {[]controller.Node{node(name11, "", "10.1.0.11", true)}, false},
		"a node that has rebooted": {[]controller.Node{node(name11, "", "10.1.0.11", false)}, true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(tt.nodes...)
			w.requests = []controller.Request{first(t, name11, nil)}
			if err := w.controller(false).Reconcile(t.Context()); err != nil || (len(w.approved) == 1) != tt.want {
				t.Errorf("approved %v, %v, reasons %v", w.approved, err, w.reasons)
			}
		})
	}
}

// TestRenewal leaves a node's renewal to the controller manager, without a word.
func TestRenewal(t *testing.T) {
	l := newLand(t, node(name11, minion, "10.1.0.11", true))
	l.requests = []controller.Request{first(t, name11, func(_ *x509.CertificateRequest, r *controller.Request) {
		r.User, r.Groups = "system:node:"+name11, []string{"system:nodes", "system:authenticated"}
	})}
	if err := l.c.Reconcile(t.Context()); err != nil || len(l.approved)+len(l.reasons) > 0 || strings.Contains(l.log.String(), "undecided") {
		t.Errorf("%v, approved %v, %v\n%s", err, l.approved, l.reasons, l.log.String())
	}
}

// TestMastersName is what a token was worth before: a Node with a master's private name gets no label, and no serving
// certificate, whatever it says of itself.
func TestMastersName(t *testing.T) {
	for _, id := range []string{master, minion, ""} {
		evil := node(name10, id, "10.1.0.66", true)
		evil.Addresses = append(evil.Addresses, netip.MustParseAddr("10.1.0.10"))
		l := newLand(t, evil)
		l.instances[0].Roles = role.NewSet(role.Masters, role.Etcd)
		l.requests = []controller.Request{request(t, func(c *x509.CertificateRequest, r *controller.Request) {
			r.User = "system:node:" + name10
			c.Subject.CommonName, c.DNSNames, c.IPAddresses = r.User, []string{name10}, []net.IP{net.ParseIP("10.1.0.10")}
		})}
		if err := l.c.Reconcile(t.Context()); err != nil {
			t.Fatal(err)
		}
		if len(l.approved) > 0 {
			t.Errorf("as %q: a serving certificate for the master's name", id)
		}
		if _, ok := l.nodes[name10].Labels["node-role.kubernetes.io/control-plane"]; ok {
			t.Errorf("as %q: labelled as a control-plane node", id)
		}
	}
}
