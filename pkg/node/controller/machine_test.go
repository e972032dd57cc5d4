package controller_test

import (
	"context"
	"crypto/x509"
	"errors"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/node/controller"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki"
)

// ownToken is the token abcdef of the machine of a node, good for another hour.
func ownToken(t *testing.T, node string) controller.MachineToken {
	t.Helper()
	group, err := pki.MachineGroup(node)
	if err != nil {
		t.Fatal(err)
	}
	return controller.MachineToken{ID: "abcdef", Groups: []string{group}, Expires: time.Now().Add(time.Hour), Version: "1"}
}

// withOwn is a request for a node with the token of the machine of another, or the same.
func withOwn(t *testing.T, node, owner string) controller.Request {
	t.Helper()
	return first(t, node, func(_ *x509.CertificateRequest, r *controller.Request) {
		r.Groups = append(r.Groups, ownToken(t, owner).Groups...)
	})
}

// TestMachineToken has no cloud: a machine with a token of its own, and every way to a certificate that an attacker with
// such a token, or with the cluster's, may try.
func TestMachineToken(t *testing.T) {
	const victim = "victim.example"
	changed := func(change func(*controller.Request)) controller.Request {
		r := withOwn(t, name11, name11)
		change(&r)
		return r
	}
	for name, tt := range map[string]struct {
		request controller.Request // the zero value is the machine's own
		world   func(w *world)
		refuse  bool   // FIRST_COME=no
		want    string // in the reason; "" is approved
	}{
		"the machine":                       {},
		"without first come":                {refuse: true},
		"its node has rebooted":             {world: func(w *world) { w.nodes[name11] = node(name11, "", "10.1.0.11", false) }},
		"the cluster's token, another name": {request: first(t, victim, nil)},
		"the cluster's token, after that of the machine has expired": {
			request: first(t, name11, nil),
			world:   func(w *world) { w.tokens[0].Expires = time.Now().Add(-time.Second) }},

		"another name":           {want: "which asks for the node " + victim, request: withOwn(t, victim, name11)},
		"a longer name":          {want: "which asks for the node", request: withOwn(t, name11+".example", name11)},
		"the name's first label": {want: "which asks for the node", request: withOwn(t, "ip-10-1-0-11", name11)},
		"a name in groups only":  {want: "which asks for the node", request: withOwn(t, "Victim", victim)},
		"two machines' groups": {want: "which asks for the node", request: changed(func(r *controller.Request) {
			r.Groups = append(r.Groups, ownToken(t, victim).Groups...)
		})},
		"no bootstrap token": {want: "does not come with a bootstrap token", request: changed(func(r *controller.Request) { r.User = "mallory" })},
		"without the right to ask": {want: "does not come with a bootstrap token", request: changed(func(r *controller.Request) {
			r.Groups = ownToken(t, name11).Groups
		})},
		"another token's ID":         {want: "no longer there", world: func(w *world) { w.tokens[0].ID = "zzzzzz" }},
		"an ID of another machine":   {want: "is for [", world: func(w *world) { w.tokens[0].Groups = []string{pki.GroupBootstrappers + ":node:victim:example"} }},
		"a token that is used":       {want: "was used by another request", world: func(w *world) { w.tokens[0].User = "another" }},
		"a token that has expired":   {want: "expired at", world: func(w *world) { w.tokens[0].Expires = time.Now().Add(-time.Second) }},
		"a token that is gone":       {want: "no longer there", world: func(w *world) { w.tokens = nil }},
		"the name of a working node": {want: "is there and Ready", world: func(w *world) { w.nodes[name11] = node(name11, "", "10.1.0.11", true) }},
		"the cluster's token, before the machine": {want: "waits until",
			request: first(t, name11, nil)},
		"the cluster's token, while the machine fetches its certificate": {want: "waits until",
			request: first(t, name11, nil),
			world:   func(w *world) { w.tokens[0].User = "the machine's" }},
		"the cluster's token, without first come": {refuse: true, want: "FIRST_COME=no",
			request: first(t, victim, nil)},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			w.tokens = []controller.MachineToken{ownToken(t, name11)}
			if tt.world != nil {
				tt.world(w)
			}
			before := slices.Clone(w.tokens)
			r := tt.request
			if r.Name == "" {
				r = withOwn(t, name11, name11)
			}
			w.requests = []controller.Request{r}
			c := w.controller(false)
			c.NoFirstCome = tt.refuse
			for range 3 {
				if err := c.Reconcile(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			if tt.want == "" != slices.Contains(w.approved, r.Name) || !strings.Contains(w.reasons[r.Name], tt.want) {
				t.Errorf("approved %v, reason %q, want %q", w.approved, w.reasons[r.Name], tt.want)
			}
			if tt.want != "" && !slices.EqualFunc(before, w.tokens, func(a, b controller.MachineToken) bool { return a.User == b.User && a.Expires.Equal(b.Expires) }) {
				t.Errorf("a refused request has used the token: %+v", w.tokens)
			}
		})
	}
}

// TestMachineTokenOnce copies a token: of two requests for its name one is approved, however the masters run, and the
// token is used before that.
func TestMachineTokenOnce(t *testing.T) {
	for name, prepare := range map[string]func(w *world){
		"one master":                func(*world) {},
		"another master was faster": func(w *world) { w.raced = 1 },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			w.tokens = []controller.MachineToken{ownToken(t, name11)}
			prepare(w)
			copied := withOwn(t, name11, name11)
			copied.Name, copied.UID = "copied", "copied"
			w.requests = []controller.Request{withOwn(t, name11, name11), copied}
			masters := []*controller.Controller{w.controller(false), w.controller(false)}
			for range 3 {
				for _, c := range masters {
					if err := c.Reconcile(t.Context()); err != nil {
						t.Fatal(err)
					}
				}
			}
			if len(w.approved) != 1 || len(w.events) != 2 || w.events[0] != "used abcdef" || len(w.requests) != 1 || !strings.Contains(w.reasons[w.requests[0].Name], "was used by another request") {
				t.Errorf("approved %v, events %v, reasons %v", w.approved, w.events, w.reasons)
			}
			if left := time.Until(w.tokens[0].Expires); left > 5*time.Minute {
				t.Errorf("the used token is good for another %v", left)
			}
		})
	}
}

// TestMachineTokenResumes has a master that ends between the token's use and the approval: the next run approves.
func TestMachineTokenResumes(t *testing.T) {
	w := newWorld()
	r := withOwn(t, name11, name11)
	used := ownToken(t, name11)
	used.User = r.UID
	w.tokens, w.requests = []controller.MachineToken{used}, []controller.Request{r}
	if err := w.controller(false).Reconcile(t.Context()); err != nil || len(w.approved) != 1 {
		t.Errorf("%v, approved %v, %v", err, w.approved, w.reasons)
	}
}

var errAway = errors.New("away")

// away is a world whose API server lists no tokens.
type away struct{ *world }

func (away) Tokens(context.Context) ([]controller.MachineToken, error) { return nil, errAway }

// TestMachineTokenUnknown has an API server that does not list tokens: nobody gets a name meanwhile.
func TestMachineTokenUnknown(t *testing.T) {
	w := newWorld()
	w.requests = []controller.Request{first(t, name11, nil)}
	c := w.controller(false)
	c.Tokens = away{w}
	if err := c.Reconcile(t.Context()); !errors.Is(err, errAway) || len(w.approved) > 0 {
		t.Errorf("%v, approved %v", err, w.approved)
	}
}

// TestMachineTokenInCloud has a token of one machine in a cloud: it is no proof of identity, and good for its name alone.
func TestMachineTokenInCloud(t *testing.T) {
	own := elsewhere(func(*url.URL, url.Values) {})
	for name, tt := range map[string]struct {
		owner string
		proof proofOf
		want  string
	}{
		"the machine":            {name11, own, ""},
		"without a proof":        {name11, func(*testing.T, *land, controller.Request) string { return "" }, "no proof"},
		"another's token":        {name12, own, "which asks for the node"},
		"another machine's name": {name11, by("demo-minions", other, "demo", 0), "asks for the node"},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLand(t)
			l.tokens = []controller.MachineToken{ownToken(t, tt.owner)}
			r := withOwn(t, name11, tt.owner)
			r.Proof = tt.proof(t, l, r)
			l.requests = []controller.Request{r}
			if err := l.c.Reconcile(t.Context()); err != nil {
				t.Fatal(err)
			}
			if tt.want == "" != slices.Contains(l.approved, r.Name) || !strings.Contains(l.reasons[r.Name], tt.want) {
				t.Errorf("approved %v, reason %q, want %q", l.approved, l.reasons[r.Name], tt.want)
			}
			if used := l.tokens[0].User != ""; used != (tt.want == "") {
				t.Errorf("used %v", used)
			}
		})
	}
}
