package function

import (
	"bytes"
	"encoding/json"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hardtack/packer-plugin-hardtack/pkg/awsfake"
	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/record"
)

func TestConnectWithAPIZone(t *testing.T) {
	env := map[string]string{EnvClusters: "demo=demo-masters", EnvZone: "Z1", EnvRegion: "eu-central-1", EnvKey: "k", EnvSecret: "s"}
	for _, tt := range []struct {
		set  map[string]string
		two  bool
		want string // in the error
	}{
		{map[string]string{EnvAPIInternal: "true"}, false, ""},
		{map[string]string{EnvAPIZone: "Z2", EnvAPISuffix: "example.com"}, true, ""},
		{map[string]string{EnvAPIZone: "Z2"}, false, "go together"},
		{map[string]string{EnvAPISuffix: "example.com"}, false, "go together"},
		{map[string]string{EnvAPIZone: "example.com", EnvAPISuffix: "example.com"}, false, "is not the id of a hosted zone"},
		{map[string]string{EnvAPIInternal: "yes"}, false, "neither true nor false"},
	} {
		s, err := Read(func(k string) string {
			if v, ok := tt.set[k]; ok {
				return v
			}
			return env[k]
		})
		if tt.want != "" {
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%v: %v", tt.set, err)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		h, err := Connect(s, io.Discard, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		if _, two := h.syncer.(twoZones); two != tt.two || s.APIInternal != (tt.set[EnvAPIInternal] == "true") {
			t.Errorf("%v: %+v", tt.set, h.syncer)
		}
	}
}

// A zone without an id cannot be connected to.
func TestConnectRefusesNoZone(t *testing.T) {
	for _, s := range []Settings{
		{Zone: "/hostedzone/", Region: "r"}, {Zone: "Z1", APIZone: "/hostedzone/", APISuffix: "example.com", Region: "r"},
	} {
		if h, err := Connect(s, io.Discard, slog.New(slog.DiscardHandler)); err == nil || h != nil {
			t.Errorf("%+v: %+v, %v", s, h, err)
		}
	}
}

// redirect sends every request to one server, and notes where it was meant to go.
type redirect struct {
	to string

	mu    sync.Mutex
	hosts map[string]bool
}

func (r *redirect) Do(in *http.Request) (*http.Response, error) {
	r.mu.Lock()
	r.hosts[in.URL.Host] = true
	r.mu.Unlock()
	out := in.Clone(in.Context())
	to, err := url.Parse(r.to)
	if err != nil {
		return nil, err
	}
	out.Host, out.URL.Scheme, out.URL.Host = in.URL.Host, to.Scheme, to.Host
	return http.DefaultClient.Do(out)
}

// newAccount is an account that only the function's own session may use: three masters of demo, of which one waits for its end, one
// minion, and a group that is not in the allow-list.
func newAccount(t *testing.T) (a *awsfake.Account, s Settings, url string) {
	t.Helper()
	a = awsfake.New(awsfake.Options{Rates: map[string]float64{"route53": 0}, EC2: awsfake.EC2Options{Public: true}})
	zone := func(name string) string {
		created, err := a.Route53().CreateHostedZone(t.Context(), awsfake.HostedZone{Name: name, CallerReference: name})
		if err != nil {
			t.Fatal(err)
		}
		return created.ID
	}
	s = Settings{
		Zone: zone("cluster.example"), Suffix: "cluster.example", APIZone: zone("example.com"), APISuffix: "example.com", APIInternal: true,
		Hook: "leave", Region: "us-west-2",
	}
	var err error
	if s.Queue, err = a.SQS().CreateQueue("pokes", nil); err != nil {
		t.Fatal(err)
	}
	for name, n := range map[string]int{"demo-masters": 3, "demo-minions": 1, "else-minions": 2} {
		tags := map[string]string{"KubernetesCluster": "demo", "Role": strings.TrimPrefix(name, name[:strings.Index(name, "-")+1])}
		if err := a.AutoScaling().Create(awsfake.Group{Name: name, Max: 9, Desired: n, Tags: tags}); err != nil {
			t.Fatal(err)
		}
		hook := awsfake.Hook{Name: "leave", Transition: "autoscaling:EC2_INSTANCE_TERMINATING", Heartbeat: time.Hour, Default: awsfake.Continue}
		if err := a.AutoScaling().PutHook(name, hook); err != nil {
			t.Fatal(err)
		}
	}
	a.Tick()
	// It waits for its hook, and is not replaced.
	if err := a.AutoScaling().Terminate(a.AutoScaling().Instances("demo-masters")[0].ID, true); err != nil {
		t.Fatal(err)
	}
	a.Tick()
	a.AddRole("function", awsfake.Administrator())
	key, err := a.Issue("function", "dns", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	s.Key = Credentials{ID: key.AccessKey, Secret: key.Secret, Session: key.Token}
	if s.Scope, err = parseScope("demo=demo-masters,demo-minions"); err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(a.Handler())
	t.Cleanup(server.Close)
	return a, s, server.URL
}

// addresses counts the addresses of each name in a zone, but of those that have the placeholder.
func addresses(t *testing.T, a *awsfake.Account, zone string) map[string]int {
	t.Helper()
	sets, err := a.Route53().RecordSets(zone)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]int{}
	for _, s := range sets {
		if s.Type == "A" && s.Values[0] != record.DefaultPolicy().Placeholder.String() {
			out[s.Name] = len(s.Values)
		}
	}
	return out
}

// age makes a zone's records ten minutes older, and with them the departure of every machine that is not in them: both are in the
// generation, which begins with its version and its time.
func age(t *testing.T, a *awsfake.Account, zone string) {
	t.Helper()
	sets, err := a.Route53().RecordSets(zone)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range sets {
		i := slices.IndexFunc(s.Values, func(v string) bool { return strings.HasPrefix(v, `"generation=`) })
		if i < 0 {
			continue
		}
		fields := strings.Split(s.Values[i], ".")
		committed, err := strconv.ParseInt(fields[1], 36, 64)
		if err != nil {
			t.Fatal(err)
		}
		fields[1] = strconv.FormatInt(committed-600, 36)
		s.Values = slices.Clone(s.Values)
		s.Values[i] = strings.Join(fields, ".")
		if _, err := a.Route53().ChangeResourceRecordSets(t.Context(), zone, []awsfake.Change{{Action: "UPSERT", Set: s}}); err != nil {
			t.Fatal(err)
		}
	}
}

// The function as Lambda runs it, with everything that its environment can ask for.
func TestConnected(t *testing.T) {
	a, s, server := newAccount(t)
	client := &redirect{to: server, hosts: map[string]bool{}}
	s.Client, s.Endpoint = client, "http://127.0.0.1:1"
	var out, log bytes.Buffer
	h, err := Connect(s, &out, slog.New(slog.NewJSONHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.Invoke(t.Context(), []byte(schedule)); err != nil {
		t.Fatal(err)
	}
	own := map[string]int{"masters.demo.cluster.example.": 2, "api.internal.demo.cluster.example.": 2, "minions.demo.cluster.example.": 1}
	if diff := cmp.Diff(own, addresses(t, a, s.Zone)); diff != "" {
		t.Errorf("the own zone (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]int{"api.demo.example.com.": 2}, addresses(t, a, s.APIZone)); diff != "" {
		t.Errorf("the public zone (-want +got):\n%s", diff)
	}
	if hosts := slices.Collect(maps.Keys(client.hosts)); !slices.Equal(hosts, []string{"127.0.0.1:1"}) {
		t.Errorf("asked %v and not the endpoint", hosts)
	}
	for line := range strings.Lines(out.String()) {
		var m emfLine
		err := json.Unmarshal([]byte(line), &m)
		if err != nil || m.Cluster != "demo" || m.Reconciles != 1 || m.AWS.Timestamp == 0 {
			t.Errorf("metrics %s, %v", line, err)
		}
	}
	if n := strings.Count(out.String(), "\n"); n != 2 {
		t.Errorf("metrics of %d zones", n)
	}
	if n := strings.Count(log.String(), "records changed"); n != 2 || !strings.Contains(log.String(), `"zone":"example.com"`) {
		t.Errorf("logged %s", &log)
	}

	messages, completed := a.SQS().Messages(s.Queue), a.Calls()["autoscaling:CompleteLifecycleAction"]
	if completed != 0 || len(messages) != 1 {
		t.Fatalf("completed %d hooks; reminders: %+v", completed, messages)
	}
	if m := messages[0]; !strings.Contains(m.Body, `"cluster":"demo"`) || !m.Visible.After(m.Sent) {
		t.Errorf("the reminder: %+v", m)
	}
	age(t, a, s.Zone)
	if _, err := h.Invoke(t.Context(), []byte(schedule)); err != nil {
		t.Fatal(err)
	}
	completed = a.Calls()["autoscaling:CompleteLifecycleAction"]
	left := a.AutoScaling().Instances("demo-masters")
	if completed != 1 || len(left) != 2 || len(a.SQS().Messages(s.Queue)) != 1 {
		t.Errorf("completed %d hooks, left %+v", completed, left)
	}
}

// Without a public zone, a queue or an endpoint, of which each may be missing.
func TestConnectedToTheLeast(t *testing.T) {
	a, s, server := newAccount(t)
	client := &redirect{to: server, hosts: map[string]bool{}}
	s.Client, s.APIZone, s.APISuffix, s.APIInternal, s.Queue = client, "", "", false, ""
	var log bytes.Buffer
	h, err := Connect(s, full{}, slog.New(slog.NewJSONHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.Invoke(t.Context(), []byte(schedule)); err != nil {
		t.Fatal(err)
	}
	own := map[string]int{"masters.demo.cluster.example.": 2, "minions.demo.cluster.example.": 1}
	if diff := cmp.Diff(own, addresses(t, a, s.Zone)); diff != "" {
		t.Errorf("the own zone (-want +got):\n%s", diff)
	}
	want := []string{"autoscaling.us-west-2.amazonaws.com", "ec2.us-west-2.amazonaws.com", "route53.amazonaws.com"}
	if hosts := slices.Sorted(maps.Keys(client.hosts)); !slices.Equal(hosts, want) {
		t.Errorf("asked %v, want %v", hosts, want)
	}
	if !strings.Contains(log.String(), "no space") || strings.Contains(log.String(), "reminder") {
		t.Errorf("logged %s", &log)
	}
}

// The SDK's own client, which is the default, does not go where an answer to a signed request points (net/http would).
func TestDefaultClientFollowsNobody(t *testing.T) {
	_, s, _ := newAccount(t)
	var asked atomic.Int32
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Add(1) }))
	defer elsewhere.Close()
	server := httptest.NewServer(http.RedirectHandler(elsewhere.URL, http.StatusFound))
	defer server.Close()
	s.Endpoint = server.URL
	h, err := Connect(s, io.Discard, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if out, err := h.Invoke(t.Context(), []byte(schedule)); err == nil || asked.Load() != 0 {
		t.Errorf("%s, %v; went elsewhere %d times", out, err, asked.Load())
	}
}
