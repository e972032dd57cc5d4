package lambda_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"

	"github.com/hardtack/packer-plugin-hardtack/pkg/awsfake"
)

// result is what the function answered to an invocation.
type result struct {
	id, kind string // kind is response, error, or init/error
	body     []byte
}

// service is a stand-in of Lambda's runtime API, as its documentation has it
// (https://docs.aws.amazon.com/lambda/latest/dg/runtimes-api.html).
type service struct {
	*httptest.Server
	ready    chan time.Time // one for every request for an invocation
	payloads chan []byte
	results  chan result
}

func newService(t *testing.T) *service {
	t.Helper()
	s := &service{ready: make(chan time.Time, 16), payloads: make(chan []byte), results: make(chan result, 16)}
	serial := 0
	mux := http.NewServeMux()
	mux.HandleFunc("GET /2018-06-01/runtime/invocation/next", func(w http.ResponseWriter, r *http.Request) {
		s.ready <- time.Now()
		select {
		case p := <-s.payloads:
			serial++
			w.Header().Set("Lambda-Runtime-Aws-Request-Id", fmt.Sprintf("request-%d", serial))
			w.Header().Set("Lambda-Runtime-Deadline-Ms", strconv.FormatInt(time.Now().Add(time.Minute).UnixMilli(), 10))
			w.Header().Set("Lambda-Runtime-Invoked-Function-Arn", "arn:aws:lambda:eu-central-1:123456789012:function:dns")
			_, _ = w.Write(p)
		case <-r.Context().Done():
		}
	})
	answer := func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		s.results <- result{r.PathValue("id"), r.PathValue("kind"), body}
		w.WriteHeader(http.StatusAccepted)
	}
	mux.HandleFunc("POST /2018-06-01/runtime/invocation/{id}/{kind}", answer)
	mux.HandleFunc("POST /2018-06-01/runtime/init/{kind}", answer)
	s.Server = httptest.NewServer(mux)
	t.Cleanup(s.CloseClientConnections)
	return s
}

// process is a running function.
type process struct {
	cmd     *exec.Cmd
	log     *bytes.Buffer // complete once stopped
	started time.Time
	stop    func()
}

func start(t *testing.T, s *service, env ...string) *process {
	t.Helper()
	return startProgram(t, s, bootstrap(t, ""), env...)
}

func startProgram(t *testing.T, s *service, program string, env ...string) *process {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	p := &process{cmd: exec.CommandContext(ctx, program), log: new(bytes.Buffer)}
	p.cmd.Stdout, p.cmd.Stderr = p.log, p.log
	p.cmd.Env = append([]string{
		"AWS_LAMBDA_RUNTIME_API=" + strings.TrimPrefix(s.URL, "http://"),
		"AWS_REGION=" + testRegion, "AWS_ACCESS_KEY_ID=AKIDROLE", "AWS_SECRET_ACCESS_KEY=secret", "AWS_SESSION_TOKEN=token",
		"_LAMBDA_SERVER_PORT=", "HARDTACK_CLUSTERS=demo=demo-masters,demo-minions", "HARDTACK_ZONE_ID=Z1",
	}, env...)
	p.started = time.Now()
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p.stop = sync.OnceFunc(func() {
		cancel()
		_ = p.cmd.Wait() // it was killed
	})
	t.Cleanup(p.stop)
	return p
}

// next waits until the function asks for an invocation.
func (s *service) next(t *testing.T, p *process) time.Time {
	t.Helper()
	select {
	case at := <-s.ready:
		return at
	case <-time.After(20 * time.Second):
		p.stop()
		t.Fatalf("the function asks for no invocation: %s", p.log)
		return time.Time{}
	}
}

func (s *service) invoke(t *testing.T, p *process, payload []byte) result {
	t.Helper()
	s.next(t, p)
	s.payloads <- payload
	select {
	case r := <-s.results:
		return r
	case <-time.After(30 * time.Second):
		p.stop()
		t.Fatalf("the function does not answer: %s", p.log)
		return result{}
	}
}

var vmHWM = regexp.MustCompile(`VmHWM:\s+(\d+) kB`)

func TestStart(t *testing.T) {
	var took []time.Duration
	var peak int
	for range 20 {
		s := newService(t)
		p := start(t, s)
		took = append(took, s.next(t, p).Sub(p.started))
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
		if err != nil {
			t.Fatal(err)
		}
		kb, err := strconv.Atoi(string(vmHWM.FindSubmatch(status)[1]))
		if err != nil {
			t.Fatal(err)
		}
		peak = max(peak, kb)
		p.stop()
	}
	slices.Sort(took)
	t.Logf("exec to the first /next: median %v, fastest %v, slowest %v of 20; peak memory by then %d KiB",
		took[10], took[0], took[19], peak)
	// The aim is 10 ms, which a busy computer may miss. What a start does before it asks for work is what it touches: 10 MiB.
	if peak > 16<<10 {
		t.Errorf("%d KiB at the first /next", peak)
	}
}

func TestStartRefusesBadSettings(t *testing.T) {
	s := newService(t)
	p := start(t, s, "HARDTACK_ZONE_ID=k8s", "HARDTACK_CLUSTERS=")
	err := p.cmd.Wait()
	if err == nil {
		t.Fatal("it ends without an error")
	}
	for _, want := range []string{"HARDTACK_CLUSTERS", "looks like Z0123456789ABC"} {
		if !strings.Contains(p.log.String(), want) {
			t.Errorf("said %s, want %q", p.log, want)
		}
	}
}

// account is a region with a cluster, and a group that says that it is the cluster's but is not allowed.
func account(t *testing.T) (a *awsfake.Account, zone, queue, url string) {
	t.Helper()
	return accountWith(t, awsfake.Options{})
}

func accountWith(t *testing.T, o awsfake.Options) (a *awsfake.Account, zone, queue, url string) {
	t.Helper()
	o.Rates = map[string]float64{"route53": 0}
	a = awsfake.New(o)
	created, err := a.Route53().CreateHostedZone(t.Context(), awsfake.HostedZone{Name: "k8s", CallerReference: "1"})
	if err != nil {
		t.Fatal(err)
	}
	if queue, err = a.SQS().CreateQueue("pokes", map[string]string{"VisibilityTimeout": "362"}); err != nil {
		t.Fatal(err)
	}
	for name, n := range map[string]int{"demo-masters": 3, "demo-minions": 5, "else-minions": 2} {
		role := strings.TrimPrefix(name[strings.Index(name, "-")+1:], "-")
		err := a.AutoScaling().Create(awsfake.Group{Name: name, Max: 9, Desired: n, Tags: map[string]string{"KubernetesCluster": "demo", "Role": role}})
		if err != nil {
			t.Fatal(err)
		}
	}
	a.Tick()
	server := httptest.NewServer(a.Handler())
	t.Cleanup(server.Close)
	return a, created.ID, queue, server.URL
}

// values counts the values of each address record of the zone.
func values(t *testing.T, a *awsfake.Account, zone string) map[string]int {
	t.Helper()
	page, err := a.Route53().ListResourceRecordSets(t.Context(), zone, awsfake.Start{}, 100)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]int{}
	for _, s := range page.Sets {
		if s.Type == "A" {
			out[s.Name] = len(s.Values)
		}
	}
	return out
}

// launched is an event of demo-masters.
func launched(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("events/launch-successful.json")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// serve starts the function on the account, with the access key that policies are for.
func serve(t *testing.T, zone, queue, endpoint string) (*service, *process) {
	t.Helper()
	s := newService(t)
	p := start(t, s, "AWS_ENDPOINT_URL="+endpoint, "HARDTACK_ZONE_ID="+zone, "HARDTACK_QUEUE_URL="+queue)
	t.Cleanup(func() {
		if p.stop(); t.Failed() {
			t.Logf("the function's log:\n%s", p.log)
		}
	})
	return s, p
}

const schedule = `{"source":"aws.events","detail-type":"Scheduled Event","detail":{}}`

// batch is what Lambda makes of the bodies: ids m0, m1 …; the i-th was received i+1 times.
func batch(t *testing.T, bodies ...string) []byte {
	t.Helper()
	var e events.SQSEvent
	for i, b := range bodies {
		e.Records = append(e.Records, events.SQSMessage{
			MessageId: fmt.Sprintf("m%d", i), Body: b, EventSource: "aws:sqs",
			Attributes: map[string]string{"ApproximateReceiveCount": strconv.Itoa(i + 1)},
		})
	}
	out, err := json.Marshal(e)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestProcessKeepsRecords(t *testing.T) {
	a, zone, queue, endpoint := account(t)
	a.SetPolicy("AKIDROLE", deployedPolicy(t, zone))
	s, p := serve(t, zone, queue, endpoint)
	r := s.invoke(t, p, batch(t, launched(t), "no JSON", launched(t)))
	if r.kind != "response" || !bytes.Contains(r.body, []byte(`"batchItemFailures":[]`)) {
		t.Fatalf("%s: %s", r.kind, r.body)
	}
	records := values(t, a, zone)
	if records["masters.demo.k8s."] != 3 || records["minions.demo.k8s."] != 5 {
		t.Errorf("records %v, want 3 masters and 5 minions: not those of the group that is not allowed", records)
	}

	before := a.Calls()
	r = s.invoke(t, p, []byte(schedule))
	if !bytes.Contains(r.body, []byte(`"changed":false`)) {
		t.Errorf("an idle sweep: %s: %s", r.kind, r.body)
	}
	var made []string
	total := 0
	for call, n := range a.Calls() {
		if n > before[call] {
			made = append(made, fmt.Sprintf("%s %d", call, n-before[call]))
			total += n - before[call]
		}
	}
	slices.Sort(made)
	t.Logf("an idle sweep's requests: %s", strings.Join(made, ", "))
	if total > 3 {
		t.Errorf("an idle sweep makes %d requests", total)
	}
}

// A role that may not write: the message that was tried most comes back, and nothing has changed.
func TestProcessWithoutRights(t *testing.T) {
	a, zone, queue, endpoint := account(t)
	a.SetPolicy("AKIDROLE", awsfake.Policy{
		{Actions: []string{"*"}, Resources: []string{"*"}},
		{Deny: true, Actions: []string{"route53:Change*"}, Resources: []string{"*"}},
	})
	s, p := serve(t, zone, queue, endpoint)
	var got events.SQSEventResponse
	r := s.invoke(t, p, batch(t, launched(t), launched(t)))
	if r.kind != "response" || json.Unmarshal(r.body, &got) != nil || len(got.BatchItemFailures) != 1 || got.BatchItemFailures[0].ItemIdentifier != "m1" {
		t.Errorf("a batch: %s: %s", r.kind, r.body)
	}
	r = s.invoke(t, p, []byte(launched(t)))
	if r.kind != "error" || !bytes.Contains(r.body, []byte("AccessDenied")) {
		t.Errorf("an event of its own: %s: %s", r.kind, r.body)
	}
	if records := values(t, a, zone); len(records) != 0 {
		t.Errorf("records %v after refused writes", records)
	}
}
