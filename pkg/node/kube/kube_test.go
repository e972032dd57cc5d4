package kube_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/hardtack/packer-plugin-hardtack/pkg/node/certs"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/controller"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/kube"
)

// server keeps objects by their paths, as far as these tests need it. The real API server is pkg/e2e's.
type server struct {
	mu       sync.Mutex
	objects  map[string]string
	requests []string
	// bodies are those of writes, by path.
	bodies map[string]string
	// conflict makes every write one that another was faster with.
	conflict bool
	// exists makes a conflict one with an object of that name.
	exists bool
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	body, _ := io.ReadAll(r.Body)
	s.requests = append(s.requests, r.Method+" "+r.URL.RequestURI())
	w.Header().Set("Content-Type", "application/json")
	status := func(code int, reason string) {
		w.WriteHeader(code)
		fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":%q,"code":%d}`, reason, code)
	}
	if r.Method != http.MethodGet {
		s.bodies[r.URL.Path] = string(body)
		if s.exists {
			status(http.StatusConflict, "AlreadyExists")
			return
		}
		if s.conflict {
			status(http.StatusConflict, "Conflict")
			return
		}
	}
	switch have, ok := s.objects[r.URL.Path]; {
	case r.Method == http.MethodPut, strings.Contains(r.URL.RawQuery, "force=true"):
		_, _ = w.Write(body)
	case !ok:
		status(http.StatusNotFound, "NotFound")
	default:
		_, _ = io.WriteString(w, have)
	}
}

func start(t *testing.T) (*server, *kube.Client) {
	t.Helper()
	s := &server{bodies: map[string]string{}, objects: map[string]string{
		"/api/v1":       `{"resources":[{"name":"nodes","kind":"Node","namespaced":false},{"name":"secrets","kind":"Secret","namespaced":true},{"name":"nodes/status","kind":"Node"}]}`,
		"/apis/apps/v1": `{"resources":[{"name":"deployments/scale","kind":"Scale","namespaced":true},{"name":"deployments","kind":"Deployment","namespaced":true}]}`,
	}}
	h := httptest.NewServer(s)
	t.Cleanup(h.Close)
	c, err := kube.New(&rest.Config{Host: h.URL})
	if err != nil {
		t.Fatal(err)
	}
	return s, c
}

func TestApply(t *testing.T) {
	s, c := start(t)
	for range 2 {
		err := c.Apply(t.Context(), map[string]any{"apiVersion": "apps/v1", "kind": "Deployment",
			"metadata": map[string]any{"name": "x", "namespace": "kube-system"}, "spec": map[string]any{"replicas": 2}})
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Apply(t.Context(), map[string]any{"apiVersion": "v1", "kind": "Secret", "metadata": map[string]any{"name": "y"}}); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"GET /apis/apps/v1",
		"PATCH /apis/apps/v1/namespaces/kube-system/deployments/x?fieldManager=hardtack&force=true",
		"PATCH /apis/apps/v1/namespaces/kube-system/deployments/x?fieldManager=hardtack&force=true",
		"GET /api/v1",
		"PATCH /api/v1/namespaces/default/secrets/y?fieldManager=hardtack&force=true",
	}
	if !reflect.DeepEqual(s.requests, want) {
		t.Errorf("requests\n%s\nwant\n%s", strings.Join(s.requests, "\n"), strings.Join(want, "\n"))
	}
}

func TestApplyRefuses(t *testing.T) {
	_, c := start(t)
	for want, object := range map[string]map[string]any{
		"has no metadata.name": {"apiVersion": "v1", "kind": "Secret"},
		"has no":               {"apiVersion": "v1", "kind": "Biscuit", "metadata": map[string]any{"name": "x"}},
		"404 Not Found":        {"apiVersion": "sea.example/v1", "kind": "Ship", "metadata": map[string]any{"name": "x"}},
	} {
		if err := c.Apply(t.Context(), object); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %q", object, err, want)
		}
	}
}

func TestNodes(t *testing.T) {
	s, c := start(t)
	s.objects["/api/v1/nodes"] = `{"items":[
		{"metadata":{"name":"a","uid":"1","labels":{"x":"y"}},"spec":{"providerID":"aws:///eu-central-1a/i-0123456789abcdef0","taints":[{"key":"dedicated"}]},
		 "status":{"addresses":[{"type":"InternalIP","address":"10.1.0.10"},{"type":"Hostname","address":"a"}],"conditions":[{"type":"DiskPressure","status":"False"},{"type":"Ready","status":"True"}]}},
		{"metadata":{"name":"b","uid":"2"},"spec":{"taints":[{"key":"node.cloudprovider.kubernetes.io/uninitialized","value":"true","effect":"NoSchedule"}]},"status":{"conditions":[{"type":"Ready","status":"Unknown"}]}}]}`
	got, err := c.Nodes(t.Context())
	want := []controller.Node{
		{Name: "a", UID: "1", Instance: "i-0123456789abcdef0", Names: []string{"a"}, Addresses: []netip.Addr{netip.MustParseAddr("10.1.0.10")}, Labels: map[string]string{"x": "y"}, Ready: true},
		{Name: "b", UID: "2", Uninitialized: true},
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
}

func TestChangesOfNodes(t *testing.T) {
	s, c := start(t)
	s.objects["/api/v1/nodes/b"] = `{"apiVersion":"v1","kind":"Node","metadata":{"name":"b"}}`
	if err := c.Label(t.Context(), "b", map[string]string{"role": ""}); err != nil {
		t.Error(err)
	}
	// One that is not there any more.
	if err := c.Label(t.Context(), "a", map[string]string{"role": ""}); err != nil || s.bodies["/api/v1/nodes/a"] != `{"metadata":{"labels":{"role":""}}}` {
		t.Errorf("labelled by %s, %v", s.bodies["/api/v1/nodes/a"], err)
	}
	// Gone already, and another one of its name.
	if err := c.Remove(t.Context(), controller.Node{Name: "a", UID: "1"}); err != nil {
		t.Error(err)
	}
	if body := s.bodies["/api/v1/nodes/a"]; !strings.Contains(body, `"preconditions":{"uid":"1"}`) {
		t.Errorf("deleted by %s", body)
	}
	s.conflict = true
	if err := c.Remove(t.Context(), controller.Node{Name: "a", UID: "1"}); err != nil {
		t.Error(err)
	}
}

func TestMasters(t *testing.T) {
	s, c := start(t)
	s.objects["/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"] = `{"items":[{"endpoints":[{"addresses":["10.1.0.10"]},{"addresses":["10.1.0.11"]}]}]}`
	got, err := c.Masters(t.Context())
	if want := []netip.Addr{netip.MustParseAddr("10.1.0.10"), netip.MustParseAddr("10.1.0.11")}; err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, %v, want %v", got, err, want)
	}
}

func TestRequests(t *testing.T) {
	s, c := start(t)
	const path = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
	waits := `{"apiVersion":"certificates.k8s.io/v1","kind":"CertificateSigningRequest","metadata":{"name":"waits","uid":"u1","annotations":{"hardtack.dev/identity":"https://sts","hardtack.dev/undecided":"because"}},"spec":{"signerName":"kubernetes.io/kubelet-serving","username":"system:node:a","groups":["system:nodes"],"usages":["server auth"],"request":"UEVN"},"status":{}}`
	decided := strings.Replace(strings.Replace(waits, "waits", "decided", 1), `"status":{}`, `"status":{"conditions":[{"type":"Denied"}]}`, 1)
	s.objects[path] = `{"items":[` + waits + "," + decided + `]}` // for both signers
	s.objects[path+"/waits"], s.objects[path+"/decided"] = waits, decided
	got, err := c.Requests(t.Context())
	one := controller.Request{Name: "waits", UID: "u1", Signer: controller.SignerServing, Proof: "https://sts", Reason: "because",
		User: "system:node:a", Groups: []string{"system:nodes"}, Usages: []string{"server auth"}, PEM: []byte("PEM")}
	if want := []controller.Request{one, one}; err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
	for i, signer := range []string{"kubelet-serving", "kube-apiserver-client-kubelet"} {
		if s.requests[i] != "GET "+path+"?fieldSelector=spec.signerName%3Dkubernetes.io%2F"+signer {
			t.Errorf("asked by %s", s.requests[i])
		}
	}
	for _, name := range []string{"waits", "decided", "not there"} {
		if err := c.Approve(t.Context(), name, "for a test"); err != nil {
			t.Error(err)
		}
	}
	var approved struct {
		Status struct {
			Conditions []struct{ Type, Status, Message string } `json:"conditions"`
		} `json:"status"`
	}
	if err := json.Unmarshal([]byte(s.bodies[path+"/waits/approval"]), &approved); err != nil {
		t.Fatal(err)
	}
	if len(s.bodies) != 1 || len(approved.Status.Conditions) != 1 || approved.Status.Conditions[0].Type != "Approved" || approved.Status.Conditions[0].Message != "for a test" {
		t.Errorf("approved %+v; written were %v", approved, s.bodies)
	}
	s.conflict = true
	if err := c.Approve(t.Context(), "waits", "for a test"); err != nil {
		t.Errorf("another master was faster: %v", err)
	}
}

// writeKubeconfig writes a kubeconfig of a server and a user's token.
func writeKubeconfig(t *testing.T, name, server, token string) {
	t.Helper()
	text := fmt.Sprintf(`{"apiVersion":"v1","kind":"Config","current-context":"x","contexts":[{"name":"x","context":{"cluster":"x","user":"x"}}],
		"clusters":[{"name":"x","cluster":{"server":%q}}],"users":[{"name":"x","user":{"token":%q}}]}`, server, token)
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestFile changes a kubeconfig under a client, as the renewal of its certificate does.
func TestFile(t *testing.T) {
	name := filepath.Join(t.TempDir(), "kubeconfig")
	f := kube.NewFile(name)
	if _, err := f.Client(); err == nil || !strings.Contains(err.Error(), name) {
		t.Errorf("without a file: %v", err)
	}
	if _, err := f.Nodes(t.Context()); err == nil || !strings.Contains(err.Error(), name) {
		t.Errorf("a call without a file: %v", err)
	}
	var clients []*kube.Client
	for _, token := range []string{"a", "a", "b"} {
		writeKubeconfig(t, name, "http://127.0.0.1:1", token)
		c, err := f.Client()
		if err != nil {
			t.Fatal(err)
		}
		clients = append(clients, c)
	}
	if clients[0] != clients[1] || clients[1] == clients[2] {
		t.Errorf("clients are %p, %p and %p: the same while the file has not changed, and then another", clients[0], clients[1], clients[2])
	}
}

// TestUndecided writes the reason, and nothing into a request that is gone.
func TestUndecided(t *testing.T) {
	s, c := start(t)
	const path = "/apis/certificates.k8s.io/v1/certificatesigningrequests/"
	s.objects[path+"waits"] = `{"apiVersion":"certificates.k8s.io/v1","kind":"CertificateSigningRequest","metadata":{"name":"waits"}}`
	for _, name := range []string{"waits", "gone"} {
		if err := c.Undecided(t.Context(), name, "because"); err != nil {
			t.Error(err)
		}
	}
	if got := s.bodies[path+"waits"]; got != `{"metadata":{"annotations":{"hardtack.dev/undecided":"because"}}}` {
		t.Errorf("written %s", got)
	}
}

// TestJoiner asks for a certificate by a token, and reads each answer that there may be.
func TestJoiner(t *testing.T) {
	s := &server{bodies: map[string]string{}, objects: map[string]string{}}
	var bearer string
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if bearer = r.Header.Get("Authorization"); bearer != "Bearer good" {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusUnauthorized)
			_, _ = io.WriteString(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Unauthorized","code":401}`)
			return
		}
		s.ServeHTTP(w, r)
	}))
	t.Cleanup(h.Close)
	const path = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
	j, err := kube.NewJoiner(h.URL, nil, "good")
	if err != nil {
		t.Fatal(err)
	}
	s.exists = true // an answer was lost
	if err := j.Ask(t.Context(), certs.JoinRequest{Name: "r", PEM: []byte("PEM"), Proof: "https://sts"}); err != nil {
		t.Error(err)
	}
	var sent struct {
		Metadata struct{ Annotations map[string]string }
		Spec     struct {
			SignerName string
			Request    []byte
			Usages     []string
		}
	}
	if err := json.Unmarshal([]byte(s.bodies[path]), &sent); err != nil || sent.Metadata.Annotations[controller.AnnotationProof] != "https://sts" ||
		sent.Spec.SignerName != controller.SignerClient || string(sent.Spec.Request) != "PEM" || len(sent.Spec.Usages) != 2 {
		t.Errorf("sent %s, %v", s.bodies[path], err)
	}
	head := `{"apiVersion":"certificates.k8s.io/v1","kind":"CertificateSigningRequest","metadata":{"name":"r","annotations":{"hardtack.dev/undecided":"why"}},"status":`
	for status, want := range map[string]certs.JoinAnswer{
		`{}`:                                   {Why: "why"},
		`{"conditions":[{"type":"Approved"}]}`: {Why: "why", Approved: true},
		`{"conditions":[{"type":"Denied","message":"by hand"}]}`:               {Why: "why", Over: "Denied: by hand"},
		`{"conditions":[{"type":"Approved"}],"certificate":"UEVN"}`:            {Why: "why", Approved: true, Certificate: []byte("PEM")},
		`{"conditions":[{"type":"Approved"},{"type":"Failed","message":"x"}]}`: {Why: "why", Approved: true, Over: "Failed: x"},
	} {
		s.objects[path+"/r"] = head + status + "}"
		if got, err := j.Answer(t.Context(), "r"); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, %v, want %+v", status, got, err, want)
		}
	}
	if got, err := j.Answer(t.Context(), "gone"); err != nil || got.Over == "" {
		t.Errorf("of one that is gone: %+v, %v", got, err)
	}
	bad, err := kube.NewJoiner(h.URL, nil, "bad")
	if err != nil {
		t.Fatal(err)
	}
	if err := bad.Ask(t.Context(), certs.JoinRequest{Name: "r"}); !errors.Is(err, certs.ErrTokenRefused) {
		t.Errorf("with a bad token: %v", err)
	}
	if _, err := bad.Answer(t.Context(), "r"); !errors.Is(err, certs.ErrTokenRefused) {
		t.Errorf("with a bad token: %v", err)
	}
}
