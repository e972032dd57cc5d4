package ready_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hardtack/packer-plugin-hardtack/pkg/node/machine"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/ready"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/reason"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/timeline"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// box is a machine: the answers of its URLs and the states of its units. A step of a test changes it.
type box struct {
	mu      sync.Mutex
	answers map[string]any // a body, or an error
	units   map[string]timeline.Unit
	patched []string
	asked   []string
	round   func() // is called when the states are asked for; may be nil
}

func (b *box) Get(_ context.Context, target *url.URL) ([]byte, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.asked = append(b.asked, target.String())
	switch answer := b.answers[target.String()].(type) {
	case string:
		return []byte(answer), nil
	case error:
		return nil, answer
	}
	return nil, reason.Errorf(reason.Unreachable, "127.0.0.1: connection refused")
}

func (b *box) Patch(_ context.Context, target *url.URL, body string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.patched = append(b.patched, target.Path+" "+body)
	b.answers[target.String()] = node("True", "KubeletReady", "sha256:00ff")
	return nil
}

func (b *box) Unit(_ context.Context, name string) (timeline.Unit, error) {
	units, err := b.all(name)
	return units[0], err
}

func (b *box) all(names ...string) ([]timeline.Unit, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var out []timeline.Unit
	for _, name := range names {
		u, ok := b.units[name]
		if !ok {
			u = timeline.Unit{Load: "loaded", Active: "active", Sub: "running"}
		}
		u.Name = name
		out = append(out, u)
	}
	return out, nil
}

func (b *box) States(_ context.Context, names ...string) ([]timeline.Unit, error) {
	if b.round != nil {
		b.round()
	}
	units, err := b.all(names...)
	for i, u := range units {
		units[i] = timeline.Unit{Name: u.Name, Load: u.Load, Active: u.Active, Sub: u.Sub, Job: u.Job}
	}
	return units, err
}

// set changes the answer of a URL or the state of a unit.
func (b *box) set(name string, value any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if u, ok := value.(timeline.Unit); ok {
		b.units[name] = u
	} else {
		b.answers[name] = value
	}
}

func (b *box) machine(roles ...role.Role) ready.Machine {
	return ready.Machine{
		Config: machine.Config{Cluster: "demo", ConfigHash: "sha256:00ff", API: machine.API{Port: 6443}}, Roles: role.NewSet(roles...),
		Node: func() (string, error) { return "node-1", nil }, Asker: b, AsNode: b,
	}
}

const (
	etcdURL    = "http://127.0.0.1:2381/readyz"
	apiURL     = "https://127.0.0.1:6443/readyz"
	kubeletURL = "http://127.0.0.1:10248/healthz"
	nodeURL    = "https://127.0.0.1:6443/api/v1/nodes/node-1"
)

func node(isReady, why, hash string) string {
	return fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}},"status":{"conditions":[{"type":"DiskPressure","status":"False"},{"type":"Ready","status":%q,"reason":%q,"message":"a message"}]}}`,
		ready.Annotation, hash, isReady, why)
}

// clock advances by a step at each reading.
type clock struct {
	mu        sync.Mutex
	now, step uint64
}

func (c *clock) read() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now += c.step
	return c.now
}

// A node is not asked for before its kubelet says that it is healthy: each request is a handshake, and the API server has a thousand nodes.
func TestNodeAfterKubelet(t *testing.T) {
	b := &box{answers: map[string]any{}, units: map[string]timeline.Unit{}}
	rounds := 0
	b.round = func() {
		if rounds++; rounds == 5 {
			if asked := strings.Join(b.asked, " "); !strings.Contains(asked, kubeletURL) || strings.Contains(asked, "/nodes/") {
				t.Errorf("of a kubelet that does not answer: %s", asked)
			}
			b.set(kubeletURL, "ok")
		}
	}
	m := b.machine(role.Minions)
	nodeURL := m.Config.APIServer(m.Roles) + "/api/v1/nodes/node-1"
	b.set(nodeURL, node("True", "KubeletReady", "sha256:00ff"))
	c := &clock{step: 1000}
	if _, err := ready.Run(t.Context(), ready.Options{Checks: m.Checks(), Manager: b, Units: m.Units(), MinWait: time.Millisecond, MaxWait: time.Millisecond, Clock: c.read}); err != nil {
		t.Fatal(err)
	}
	if rounds < 5 || !slices.Contains(b.asked, nodeURL) {
		t.Errorf("after %d rounds: %v", rounds, b.asked)
	}
}

// TestWholeMachine starts one machine with every role, check by check; each step is taken once the status names the
// missing check.
func TestWholeMachine(t *testing.T) {
	b := &box{answers: map[string]any{}, units: map[string]timeline.Unit{
		"hardtack-certs-etcd.service":     {Load: "loaded", Active: "activating", Sub: "start", Status: "[store] reading the store: no answer"},
		"etcd.service":                    {Load: "loaded", Active: "activating", Sub: "start"},
		"kube-apiserver.service":          {Load: "loaded", Active: "activating", Sub: "auto-restart", Result: "exit-code", Restarts: 3},
		"kube-controller-manager.service": {Load: "loaded", Active: "activating", Sub: "start-pre", Status: "[unreachable] https://127.0.0.1:6443/readyz"},
		"hardtack-addons.service":         {Load: "loaded", Active: "activating", Sub: "start"},
		"hardtack-controller.service":     {Load: "not-found", Active: "inactive"},
		"hardtack-bootstrap.service":      {Load: "loaded", Active: "activating", Sub: "start", Status: "[token] no token yet"},
		"kubelet.service":                 {Load: "loaded", Active: "inactive", Sub: "dead"},
		"kube-proxy.service":              {Load: "loaded", Active: "inactive", Sub: "dead"},
	}}
	up := timeline.Unit{Load: "loaded", Active: "active", Sub: "running"}
	script := []struct {
		want string
		then func()
	}{
		{"[store] etcd, api, controllers, addons, kubelet, proxy, node not ready: hardtack-certs-etcd.service: reading the store: no answer",
			func() { b.set("hardtack-certs-etcd.service", up) }},
		{"[etcd] etcd, api, controllers, addons, kubelet, proxy, node not ready: etcd.service: the unit is activating (start)",
			func() { b.set("etcd.service", up); b.set(etcdURL, "ok") }},
		{"[api] api, controllers, addons, kubelet, proxy, node not ready: kube-apiserver.service: the unit is activating (auto-restart), its last run ended with exit-code, started again 3 times",
			func() {
				b.set("kube-apiserver.service", up)
				b.set(apiURL, reason.Errorf(reason.NotReady, "status 500"))
			}},
		{"[unreachable] api, controllers, addons, kubelet, proxy, node not ready: kube-controller-manager.service: https://127.0.0.1:6443/readyz",
			func() { b.set("kube-controller-manager.service", up) }},
		{"[addons] api, addons, kubelet, proxy, node not ready: hardtack-addons.service: the unit is activating (start)",
			func() { b.set(apiURL, "ok"); b.set("hardtack-addons.service", up) }},
		{"[token] kubelet, proxy, node not ready: hardtack-bootstrap.service: no token yet",
			func() { b.set("hardtack-bootstrap.service", up) }},
		{"[kubelet] kubelet, proxy, node not ready: kubelet.service: the unit is inactive (dead)",
			func() { b.set("kubelet.service", up); b.set(kubeletURL, "ok"); b.set("kube-proxy.service", up) }},
		{"[unreachable] node not ready: kubelet.service: asking for node node-1: 127.0.0.1: connection refused",
			func() { b.set(nodeURL, reason.Errorf(reason.NotReady, "status 404 Not Found")) }},
		{"[not-registered] node not ready: kubelet.service: asking for node node-1: status 404 Not Found",
			func() { b.set(nodeURL, `{"status":{}}`) }},
		{"[node-not-ready] node not ready: kubelet.service: node node-1 has no condition Ready yet",
			func() { b.set(nodeURL, node("False", "KubeletNotReady", "")) }},
		{"[node-not-ready] node not ready: kubelet.service: node node-1: KubeletNotReady: a message",
			func() {
				b.set(nodeURL, `{"spec":{"taints":[{"key":"dedicated"},{"key":"node.cloudprovider.kubernetes.io/uninitialized","value":"true","effect":"NoSchedule"}]},`+
					`"status":{"conditions":[{"type":"Ready","status":"True"}]}}`)
			}},
		{"[node-not-ready] node not ready: kubelet.service: node node-1 takes no pods: it waits for the cloud's controller",
			func() { b.set(nodeURL, node("True", "KubeletReady", "old")) }},
	}
	at := 0
	m := b.machine(role.All()...)
	c := &clock{step: 1000}
	var works []string
	marks, err := ready.Run(t.Context(), ready.Options{
		Works:  func(c ready.Check) { works = append(works, c.Name) },
		Checks: m.Checks(), Manager: b, Units: m.Units(), MinWait: time.Millisecond, MaxWait: 2 * time.Millisecond, Clock: c.read,
		Report: func(f reason.Failure) { t.Errorf("reported %+v", f) },
		Status: func(text string) {
			if at >= len(script) || text != script[at].want {
				t.Errorf("step %d: %s", at, text)
				return
			}
			script[at].then()
			at++
		},
	})
	if err != nil || at != len(script) {
		t.Fatalf("%v, after %d steps of %d", err, at, len(script))
	}
	var names []string
	for i, mark := range marks {
		names = append(names, mark.Name)
		if i > 0 && mark.At < marks[i-1].At {
			t.Errorf("%v", marks)
		}
	}
	if got := strings.Join(names, " "); got != "scheduler tunnels network tunnel etcd controllers api addons kubelet proxy node" {
		t.Errorf("marks %s", got)
	}
	if !slices.Equal(works, names) {
		t.Errorf("told that %v work, want each mark once", works)
	}
	want := []string{`/api/v1/nodes/node-1 {"metadata":{"annotations":{"hardtack.dev/config-hash":"sha256:00ff"}}}`}
	if diff := cmp.Diff(want, b.patched); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

// TestStalls expects one report of the reason, and no heartbeats after it; a reason that cannot pass is reported sooner.
func TestStalls(t *testing.T) {
	tests := []struct {
		name   string
		status string
		step   time.Duration // of the clock
		looks  int           // until something is said
		want   reason.Reason
	}{
		{"waiting for others", "[token] no token", 30 * time.Second, 10, reason.Token},
		{"a wrong CA", "[untrusted] another CA", 5 * time.Second, 4, reason.Untrusted},
		{"a number that changes", "", 30 * time.Second, 10, reason.Etcd},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			b := &box{answers: map[string]any{}, units: map[string]timeline.Unit{}}
			unit := timeline.Unit{Load: "loaded", Active: "activating", Sub: "start", Status: test.status}
			b.set("etcd.service", unit)
			m := b.machine(role.Etcd)
			c := &clock{}
			ctx, cancel := context.WithCancel(t.Context())
			var said []reason.Failure
			looks, alive, reported := 0, 0, 0
			b.round = func() {
				looks++
				c.mu.Lock()
				c.now += uint64(test.step / time.Microsecond)
				c.mu.Unlock()
				unit.Restarts++ // the cause's text is another one each time
				b.set("etcd.service", unit)
				if looks == 40 {
					cancel()
				}
			}
			_, err := ready.Run(ctx, ready.Options{Checks: m.Checks(), Manager: b, Units: m.Units(), MinWait: time.Microsecond, MaxWait: time.Microsecond, Clock: c.read,
				Alive: func(context.Context) { alive++ }, Report: func(f reason.Failure) { said, reported = append(said, f), looks }})
			if !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
			// The time is counted from the first round.
			if len(said) != 1 || said[0].Reason != test.want || said[0].Unit != "etcd.service" || reported != test.looks+1 {
				t.Errorf("after %d looks: %+v", reported, said)
			}
			if most := int(ready.DefaultStall / test.step); alive > most || alive < most-1 && most < 40 {
				t.Errorf("kept alive %d times", alive)
			}
		})
	}
}

// TestSkipped: a unit that has nothing to do on this machine is not why another one does not work, unless a job is about to look
// at its condition again. It is asked about once in each state.
func TestSkipped(t *testing.T) {
	const images = "hardtack-images.service"
	skipped := timeline.Unit{Load: "loaded", Active: "inactive", Sub: "dead", Skipped: true}
	waits := skipped
	waits.Job = 7
	b := &box{answers: map[string]any{}, units: map[string]timeline.Unit{
		images: skipped, "kubelet.service": {Load: "loaded", Active: "activating", Sub: "start"},
	}}
	m := b.machine(role.Minions)
	asked := &countUnits{box: b, of: map[string]int{}}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var said []string
	rounds := 0
	b.round = func() {
		rounds++
		switch rounds {
		case 4:
			b.set(images, waits)
		case 6:
			cancel()
		}
	}
	_, err := ready.Run(ctx, ready.Options{Checks: m.Checks(), Manager: asked, Units: m.Units(), MinWait: time.Microsecond, MaxWait: time.Microsecond, Clock: (&clock{step: 1}).read,
		Status: func(text string) { said = append(said, text) }})
	if !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	want := []string{
		"[kubelet] kubelet, node not ready: kubelet.service: the unit is activating (start)",
		"[unit] kubelet, node not ready: hardtack-images.service: the unit is inactive (dead), one of its conditions is not met: systemctl status says which",
	}
	if diff := cmp.Diff(want, said); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	if asked.of[images] != 1+2 {
		t.Errorf("asked %d times about a unit that was skipped, and then had a job for two rounds", asked.of[images])
	}
}

// countUnits counts the questions about each unit.
type countUnits struct {
	*box
	of map[string]int
}

func (c *countUnits) Unit(ctx context.Context, name string) (timeline.Unit, error) {
	c.of[name]++
	return c.box.Unit(ctx, name)
}

// TestUnitsUnknown expects the check's own error if the manager does not answer.
func TestUnitsUnknown(t *testing.T) {
	b := &box{answers: map[string]any{}}
	ctx, cancel := context.WithCancel(t.Context())
	var status string
	_, err := ready.Run(ctx, ready.Options{Checks: b.machine(role.Etcd).Checks(), Manager: broken{}, Units: []string{"etcd.service"}, Clock: (&clock{step: 1}).read,
		Status: func(text string) { status = text; cancel() }})
	if err == nil || status != "[etcd] etcd not ready: etcd.service: "+etcdURL+": 127.0.0.1: connection refused" {
		t.Errorf("%v, %q", err, status)
	}
}

type broken struct{}

func (broken) States(context.Context, ...string) ([]timeline.Unit, error) {
	return nil, errors.New("no bus")
}

func (broken) Unit(context.Context, string) (timeline.Unit, error) {
	return timeline.Unit{}, errors.New("no bus")
}

// launch is a group with a machine.
type launch struct {
	states   []string // successive answers of State; the last one is repeated
	open     int      // the number of calls of Complete before an action is open; -1: never
	err      error    // the first error of Complete
	stateErr error
	beats    int
}

func (l *launch) State(context.Context) (string, error) {
	state := l.states[0]
	if len(l.states) > 1 {
		l.states = l.states[1:]
	}
	return state, l.stateErr
}

func (l *launch) Heartbeat(context.Context) error {
	l.beats++
	return errors.New("throttled")
}

func (l *launch) Complete(context.Context) error {
	if err := l.err; err != nil {
		l.err = nil
		return err
	}
	if l.open != 0 {
		l.open--
		return fmt.Errorf("hook: %w", ready.ErrNoAction)
	}
	return nil
}

// TestComplete completes a launch in every state that a machine can have.
func TestComplete(t *testing.T) {
	refused := reason.Errorf(reason.Permission, "AccessDenied")
	tests := []struct {
		name     string
		launch   *launch
		want     string
		reported []reason.Reason
	}{
		{"held", &launch{}, "the group's launch hook is completed", nil},
		{"not held yet", &launch{open: 1, states: []string{"Pending"}}, "the group's launch hook is completed", []reason.Reason{reason.Hook}},
		{"refused once", &launch{err: refused}, "the group's launch hook is completed", []reason.Reason{reason.Permission}},
		{"a reboot", &launch{open: -1, states: []string{"InService"}}, "the launch is over already: the machine is InService", nil},
		{"terminating", &launch{open: -1, states: []string{"Terminating:Wait"}}, "the launch is over already: the machine is Terminating:Wait", nil},
		{"no group", &launch{open: -1, states: []string{""}}, "the machine belongs to no group", nil},
		{"state unknown", &launch{open: -1, states: []string{""}, stateErr: refused}, "no lifecycle action is open, and the machine lacks the permission to read its own state", nil},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			var reported []reason.Reason
			said, err := ready.Complete(t.Context(), test.launch, func(err error) { reported = append(reported, reason.Of(err)) })
			if err != nil || said != test.want {
				t.Errorf("%q, %v", said, err)
			}
			if diff := cmp.Diff(test.reported, reported); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}
}

// TestHeart expects at most one heartbeat in twenty seconds, whatever the answers are.
func TestHeart(t *testing.T) {
	l := &launch{}
	h := ready.Heart{Launch: l, Clock: (&clock{step: 5e6}).read, Log: slog.New(slog.NewTextHandler(io.Discard, nil))}
	for range 20 {
		h.Beat(t.Context())
	}
	if l.beats != 5 {
		t.Errorf("%d beats in 100 s", l.beats)
	}
}

// TestNodeSaysWhatItIs asks once more after each patch: what is right is not written again.
func TestNodeSaysWhatItIs(t *testing.T) {
	const path = "/api/v1/nodes/node-1 "
	hash := ready.Annotation + `":"sha256:00ff"`
	for name, tt := range map[string]struct{ has, rootHash, want string }{
		"a new node":         {`{}`, "0f", path + `{"metadata":{"annotations":{"` + hash + `,"hardtack.dev/root-hash":"0f"}}}`},
		"a root that writes": {`{"` + hash + `}`, "", ""},
		"another root":       {`{"` + hash + `,"hardtack.dev/root-hash":"0e"}`, "0f", path + `{"metadata":{"annotations":{"hardtack.dev/root-hash":"0f"}}}`},
		"sealed no more":     {`{"` + hash + `,"hardtack.dev/root-hash":"0e"}`, "", path + `{"metadata":{"annotations":{"hardtack.dev/root-hash":null}}}`},
		"as it was":          {`{"` + hash + `,"hardtack.dev/root-hash":"0f"}`, "0f", ""},
	} {
		b := &box{answers: map[string]any{nodeURL: `{"metadata":{"annotations":` + tt.has + `},"status":{"conditions":[{"type":"Ready","status":"True"}]}}`}}
		m := b.machine(role.Masters, role.Minions)
		m.RootHash = tt.rootHash
		for _, c := range m.Checks() {
			if c.Name != "node" {
				continue
			}
			if err := c.Probe(t.Context()); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		if got := strings.Join(b.patched, "\n"); got != tt.want {
			t.Errorf("%s: patched was %s, want %s", name, got, tt.want)
		}
	}
}
