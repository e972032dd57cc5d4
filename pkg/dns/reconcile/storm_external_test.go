package reconcile_test

import (
	"bytes"
	"context"
	"encoding/gob"
	"net"
	"net/http/httptest"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/awsfake"
)

// The row of the program itself beside its model's, whose name is in peers.
const (
	externalDNSModel  = "external-dns (poll, 1 min)"
	externalDNSItself = "external-dns itself, v0.22.0"
)

// endpoint has the fields of external-dns's own type that matter here; gob goes by their names.
type endpoint struct {
	DNSName    string
	Targets    []string
	RecordType string
	RecordTTL  int64
}

// external is external-dns in one storm: the program, an account for it to talk to over the wire, and a
// server of what it should publish. It polls as its loop does, once a minute with its defaults (the txt
// registry, batches of 1000 changes; a policy has to be named), each time as one run with --once; between the runs the storm's time
// passes.
type external struct {
	t       *testing.T
	program string
	env     []string
	*storm
	account *awsfake.Account
	zone    string
	source  string // the address that serves the endpoints
	clock   *runClock
	said    map[string]int // what it complained about, without times, and how often
}

// runClock is the account's time: the storm's at the beginning of a run, and real time from there.
type runClock struct {
	mu          sync.Mutex
	base, began time.Time
}

func (c *runClock) start(at time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.base, c.began = at, time.Now()
}

func (c *runClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.base.Add(time.Since(c.began))
}

func (c *runClock) Sleep(ctx context.Context, _ time.Duration) error { return ctx.Err() }

// externalDNS is the system that runs the program.
func externalDNS(t *testing.T, program string, said map[string]int) system {
	t.Helper()
	return system{externalDNSItself, func(s *storm) {
		x := &external{t: t, program: program, storm: s, clock: &runClock{}, said: said}
		x.clock.start(s.now)
		x.account = awsfake.New(awsfake.Options{Clock: x.clock})
		z, err := x.account.Route53().CreateHostedZone(t.Context(), awsfake.HostedZone{Name: "k8s.", CallerReference: "storm"})
		if err != nil {
			t.Fatal(err)
		}
		x.zone = z.ID
		server := httptest.NewServer(x.account.Handler())
		t.Cleanup(server.Close)
		x.serve()
		x.env = []string{"HOME=" + t.TempDir(), "AWS_ENDPOINT_URL=" + server.URL, "AWS_REGION=eu-central-1",
			"AWS_ACCESS_KEY_ID=AKIDEXAMPLE", "AWS_SECRET_ACCESS_KEY=secret", "AWS_EC2_METADATA_DISABLED=true"}
		for at := 10 * time.Second; at < stormHorizon; at += time.Minute {
			s.after(at, x.poll)
		}
	}}
}

// serve answers every connection with the machines that are in service, as one endpoint.
func (x *external) serve() {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		x.t.Fatal(err)
	}
	x.t.Cleanup(func() { _ = l.Close() })
	x.source = l.Addr().String()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_ = gob.NewEncoder(c).Encode(x.endpoints(x.clock.Now())) // the program says what it did not get
			_ = c.Close()
		}
	}()
}

// endpoints are called while the storm's own time stands still.
func (x *external) endpoints(now time.Time) []*endpoint {
	e := &endpoint{DNSName: "minions.demo.k8s", RecordType: "A", RecordTTL: 5}
	for i, up := range x.up {
		if !up.After(now) {
			e.Targets = append(e.Targets, stormAddress(i).String())
		}
	}
	if len(e.Targets) == 0 {
		return []*endpoint{}
	}
	return []*endpoint{e}
}

// poll is one run of the program and what it left in the zone.
func (x *external) poll() {
	before := x.calls()
	x.clock.start(x.now)
	cmd := exec.CommandContext(x.t.Context(), x.program, "--once", "--source=connector", "--connector-source-server="+x.source,
		"--provider=aws", "--policy=sync", "--txt-owner-id=storm", "--metrics-address=127.0.0.1:0")
	cmd.Env = x.env
	out, err := cmd.CombinedOutput()
	// Its loop goes on after what it calls a soft error; with --once it exits with 1.
	if err != nil && !bytes.Contains(out, []byte("failed to submit all changes")) {
		x.t.Fatalf("external-dns: %v\n%s", err, out)
	}
	if x.calls() == before {
		x.t.Fatalf("external-dns asked nothing of the account\n%s", out)
	}
	x.route53 = x.calls()
	x.listen(string(out))
	page, err := x.account.Route53().ListResourceRecordSets(x.t.Context(), x.zone, awsfake.Start{}, 300)
	if err != nil {
		x.t.Fatal(err)
	}
	for _, set := range page.Sets {
		for i := range x.up {
			if set.Type == "A" && slices.Contains(set.Values, stormAddress(i).String()) {
				x.publish(i)
			}
		}
	}
}

func (x *external) calls() int {
	n := 0
	for action, count := range x.account.Calls() {
		if strings.HasPrefix(action, "route53:") && action != "route53:CreateHostedZone" {
			n += count
		}
	}
	return n
}

var (
	complaint = regexp.MustCompile(`level=(?:warning|error) msg="((?:[^"\\]|\\.)*)"`)
	unique    = regexp.MustCompile(`RequestID: [^,]+|[0-9]{2,}`)
)

func (x *external) listen(out string) {
	for _, m := range complaint.FindAllStringSubmatch(out, -1) {
		x.said[unique.ReplaceAllString(m[1], "…")]++
	}
}

// stormsOfExternalDNS measures the program itself, and holds its model against it.
func stormsOfExternalDNS(t *testing.T, sizes []int, models []figures) []figures {
	t.Helper()
	if os.Getenv("HARDTACK_E2E") == "" {
		t.Skip("builds external-dns, which takes minutes the first time: make e2e runs it (HARDTACK_E2E=1)")
	}
	tool := exec.CommandContext(t.Context(), "scripts/tool", "external-dns")
	var words bytes.Buffer
	tool.Dir, tool.Stderr = "../../..", &words
	program, err := tool.Output()
	if err != nil {
		t.Skipf("external-dns does not build here: %v\n%s", err, &words)
	}
	var all []figures
	for _, n := range sizes {
		said := map[string]int{}
		f := stormOf(externalDNS(t, strings.TrimSpace(string(program)), said), n)
		for text, count := range said {
			t.Logf("%d launches, said %d times: %s", n, count, text)
		}
		all = append(all, f)
		i := slices.IndexFunc(models, func(m figures) bool { return m.System == externalDNSModel && m.Launches == n })
		m := models[i]
		if f.Route53Calls != m.Route53Calls || f.Missing != m.Missing || max(f.RightAfter-m.RightAfter, m.RightAfter-f.RightAfter) > 1 {
			t.Errorf("the model is not as the program is: %+v, model %+v", f, m)
		}
	}
	return all
}
