package kube_test

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/hardtack/packer-plugin-hardtack/pkg/node/kube"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki"
)

// desk is an API server with one certificate request, which it answers as a test says. The real one is pkg/e2e's.
type desk struct {
	mu sync.Mutex
	// refuse are the verbs that the caller may not do.
	refuse map[string]int
	// decide changes the request whenever it is read.
	decide  func(request map[string]any)
	request map[string]any
	calls   []string
}

func (d *desk) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	d.mu.Lock()
	defer d.mu.Unlock()
	call := r.Method
	if strings.HasSuffix(r.URL.Path, "/approval") {
		call = "approve"
	}
	d.calls = append(d.calls, call)
	w.Header().Set("Content-Type", "application/json")
	code := d.refuse[call]
	if d.request == nil && call != http.MethodPost && code == 0 {
		code = http.StatusNotFound
	}
	if code != 0 {
		w.WriteHeader(code)
		reason := map[int]string{403: "Forbidden", 404: "NotFound", 409: "Conflict"}[code]
		fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"no %s for you","reason":%q,"code":%d}`, call, reason, code)
		return
	}
	switch call {
	case http.MethodPost, "approve":
		body, _ := io.ReadAll(r.Body)
		d.request = map[string]any{}
		_ = json.Unmarshal(body, &d.request)
		d.request["metadata"].(map[string]any)["uid"] = "1"
	case http.MethodGet:
		d.decide(d.request)
	}
	_ = json.NewEncoder(w).Encode(d.request)
	if call == http.MethodDelete {
		d.request = nil
	}
}

// sign is a signer that issues what is asked for, or for another user.
func sign(t *testing.T, as string) func(map[string]any) {
	t.Helper()
	key, err := pki.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	ca, err := pki.NewAuthority("test", key, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return func(request map[string]any) {
		if request["status"] == nil { // not approved
			return
		}
		var text []byte
		data, _ := json.Marshal(request["spec"].(map[string]any)["request"])
		_ = json.Unmarshal(data, &text)
		block, _ := pem.Decode(text)
		csr, err := x509.ParseCertificateRequest(block.Bytes)
		if err != nil {
			t.Error(err)
			return
		}
		template := &x509.Certificate{SerialNumber: ca.Certificate.SerialNumber, Subject: csr.Subject, NotBefore: time.Now(), NotAfter: time.Now().Add(time.Hour)}
		if as != "" {
			template.Subject.CommonName = as
		}
		der, err := x509.CreateCertificate(nil, template, ca.Certificate, csr.PublicKey, ca.Key)
		if err != nil {
			t.Error(err)
			return
		}
		request["status"].(map[string]any)["certificate"] = pki.EncodeCertificate(&x509.Certificate{Raw: der})
	}
}

// condition answers the request.
func condition(kind, message string) func(map[string]any) {
	return func(request map[string]any) {
		request["status"] = map[string]any{"conditions": []any{map[string]any{"type": kind, "status": "True", "message": message}}}
	}
}

// ofAdmin writes the kubeconfig of whoever asks.
func ofAdmin(t *testing.T, server string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "admin.kubeconfig")
	if err := os.WriteFile(file, fmt.Appendf(nil, `{apiVersion: v1, kind: Config, current-context: a,
clusters: [{name: c, cluster: {server: %q}}, {name: other, cluster: {server: "https://other"}}],
users: [{name: boss, user: {token: top-secret}}, {name: other, user: {token: other-secret}}],
contexts: [{name: a, context: {cluster: c, user: boss}}, {name: b, context: {cluster: other, user: other}}]}
`, server), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestPersonKubeconfig(t *testing.T) {
	jane := kube.Person{User: "jane", Groups: []string{"b", "a"}, Life: time.Hour}
	nothing := func(map[string]any) {}
	for name, tt := range map[string]struct {
		desk  *desk
		hands bool // somebody else has to approve
		err   string
		told  string
		calls string
	}{
		"approved": {desk: &desk{decide: sign(t, "")}, calls: "POST approve GET DELETE"},
		"may not ask": {desk: &desk{refuse: map[string]int{"POST": 403}}, err: "creating the request: no POST for you",
			calls: "POST DELETE"},
		"may not approve, and somebody denies": {desk: &desk{refuse: map[string]int{"approve": 403}, decide: condition("Denied", "not today")},
			err: "is denied: not today", told: "you may not approve it: no approve for you", calls: "POST approve GET DELETE"},
		"nobody approves": {desk: &desk{decide: nothing}, hands: true, err: "nobody approved it", told: "kubectl certificate approve hardtack-person-"},
		"nobody signs":    {desk: &desk{decide: nothing}, err: "it is approved and not signed"},
		"somebody changed it": {desk: &desk{refuse: map[string]int{"approve": 409}}, err: "approving request hardtack-person-",
			calls: "POST approve DELETE"},
		"the signer fails":        {desk: &desk{decide: condition("Failed", "no such signer")}, err: "is failed: no such signer", calls: "POST approve GET DELETE"},
		"another's certificate":   {desk: &desk{decide: sign(t, "eve")}, err: "is for CN=eve", calls: "POST approve GET DELETE"},
		"another's request":       {desk: &desk{decide: func(r map[string]any) { r["metadata"].(map[string]any)["uid"] = "2" }}, err: "another's now"},
		"it cannot be deleted":    {desk: &desk{decide: sign(t, ""), refuse: map[string]int{"DELETE": 403}}, told: "may still be there: no DELETE for you"},
		"it may not be read":      {desk: &desk{refuse: map[string]int{"GET": 403}}, err: "reading request hardtack-person-", calls: "POST approve GET DELETE"},
		"the API server is away":  {desk: &desk{refuse: map[string]int{"GET": 503}}, err: "no GET for you"},
		"the answer is not ready": {desk: &desk{decide: late(sign(t, ""))}, calls: "POST approve GET GET DELETE"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := tt.desk
			h := httptest.NewServer(d)
			t.Cleanup(h.Close)
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
			defer cancel()
			var told strings.Builder
			data, expires, err := kube.PersonKubeconfig(ctx, ofAdmin(t, h.URL), jane, kube.PersonOptions{Approve: !tt.hands, Tell: func(line string) { told.WriteString(line) }})
			if (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
				t.Errorf("%v, want %q", err, tt.err)
			}
			if !strings.Contains(told.String(), tt.told) || tt.told == "" && told.String() != "" {
				t.Errorf("told %q, want %q", told.String(), tt.told)
			}
			if calls := strings.Join(d.calls, " "); tt.calls != "" && calls != tt.calls || !strings.HasSuffix(calls, " DELETE") {
				t.Errorf("calls %s, want %s", calls, tt.calls)
			}
			if err == nil {
				checkPerson(t, data, expires, h.URL)
			} else if data != nil {
				t.Errorf("a kubeconfig in spite of the error: %s", data)
			}
		})
	}
}

// late answers at the second time.
func late(decide func(map[string]any)) func(map[string]any) {
	n := 0
	return func(r map[string]any) {
		if n++; n > 1 {
			decide(r)
		}
	}
}

func checkPerson(t *testing.T, data []byte, expires time.Time, server string) {
	t.Helper()
	config, err := clientcmd.Load(data)
	if err != nil {
		t.Fatal(err)
	}
	cluster, user := config.Clusters["c"], config.AuthInfos["jane"]
	if len(config.Clusters) != 1 || len(config.AuthInfos) != 1 || len(config.Contexts) != 1 || cluster.Server != server || strings.Contains(string(data), "secret") {
		t.Fatalf("more or less than the person's: %s", data)
	}
	cert, err := pki.ParseCertificate(user.ClientCertificateData)
	if err != nil || cert.Subject.CommonName != "jane" || !cert.NotAfter.Equal(expires) || !slices.Contains(cert.Subject.Organization, "a") {
		t.Errorf("%v: %s until %v", err, cert.Subject, cert.NotAfter)
	}
}

// TestPersonRefused: nothing is sent for whom no certificate may be asked for.
func TestPersonRefused(t *testing.T) {
	d := &desk{}
	h := httptest.NewServer(d)
	t.Cleanup(h.Close)
	file := ofAdmin(t, h.URL)
	for want, p := range map[string]kube.Person{
		"needs a name":                     {Life: time.Hour},
		`"system:masters" is no name`:      {User: "eve", Groups: []string{"a", "system:masters"}, Life: time.Hour},
		`"system:node:a" is no name`:       {User: "system:node:a", Life: time.Hour},
		`"hardtack:controller" is no name`: {User: "hardtack:controller", Life: time.Hour},
		`"" is no name`:                    {User: "eve", Groups: []string{""}, Life: time.Hour},
		"signs for 10m0s at least":         {User: "eve", Life: 9 * time.Minute},
	} {
		if _, _, err := kube.PersonKubeconfig(t.Context(), file, p, kube.PersonOptions{Approve: true}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	eve := kube.Person{User: "eve", Life: time.Hour}
	for want, text := range map[string]string{
		"no current context":       "{apiVersion: v1, kind: Config}",
		"insecure-skip-tls-verify": `{apiVersion: v1, kind: Config, current-context: a, clusters: [{name: c, cluster: {server: "` + h.URL + `", insecure-skip-tls-verify: true}}], contexts: [{name: a, context: {cluster: c, user: u}}], users: [{name: u, user: {token: t}}]}`,
	} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, _, err := kube.PersonKubeconfig(t.Context(), file, eve, kube.PersonOptions{Approve: true}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	if len(d.calls) > 0 {
		t.Errorf("calls %v", d.calls)
	}
}
