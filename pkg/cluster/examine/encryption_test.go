package examine_test

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/hardtack/packer-plugin-hardtack/pkg/cluster/examine"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/kube"
)

// TestUsesEncryption: an API server with another configuration is waited for and named, one without the metric is named and no
// obstacle. That kube-apiserver says what is read here is shown in pkg/e2e.
func TestUsesEncryption(t *testing.T) {
	config := []byte("kind: EncryptionConfiguration\n")
	gauge := func(content string) string { return encryptionGauge("sha256:aa", content) }
	for name, test := range map[string]struct{ metrics, problem, story string }{
		"the same":        {metrics: gauge(string(config))},
		"another":         {metrics: gauge("old"), problem: "uses other keys: its file was sha256:", story: "waiting for 2m0s"},
		"no such metric":  {metrics: "up 1\n", story: "does not say which keys it uses"},
		"no metrics":      {metrics: "<html>\n", problem: "reading /metrics", story: "waiting"},
		"not an operator": {problem: "GET /metrics: 403 Forbidden", story: "waiting"},
	} {
		t.Run(name, func(t *testing.T) {
			h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				switch {
				case r.URL.Path != "/metrics":
					fmt.Fprint(w, `{"items":[{"endpoints":[{"addresses":["10.1.0.10"]}]}]}`)
				case test.metrics == "":
					w.WriteHeader(http.StatusForbidden)
				default:
					fmt.Fprint(w, test.metrics)
				}
			}))
			defer h.Close()
			c, err := kube.New(&rest.Config{Host: h.URL})
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if test.problem != "" {
				time.AfterFunc(200*time.Millisecond, cancel)
			}
			var story strings.Builder
			err = examine.UsesEncryption(ctx, c, config, &story)
			if (err == nil) != (test.problem == "") || err != nil && (!strings.Contains(err.Error(), test.problem) || !strings.Contains(err.Error(), h.Listener.Addr().String())) {
				t.Errorf("got %v, want %q", err, test.problem)
			}
			if (story.Len() == 0) != (test.story == "") || !strings.Contains(story.String(), test.story) {
				t.Errorf("it told %q, want %q", story.String(), test.story)
			}
		})
	}
}

// encryptionGauge is the metric of an API server whose file has this content.
func encryptionGauge(id, content string) string {
	return fmt.Sprintf("# TYPE apiserver_encryption_config_controller_last_config_info gauge\n"+
		"apiserver_encryption_config_controller_last_config_info{apiserver_id_hash=%q,hash=\"sha256:%x\"} 1\n", id, sha256.Sum256([]byte(content)))
}

// TestUsesEncryptionBehindALoadBalancer: one address is of all API servers, and each connection goes to the next. None counts
// twice, and one that still uses old keys is found.
func TestUsesEncryptionBehindALoadBalancer(t *testing.T) {
	const config = "kind: EncryptionConfiguration\n"
	for name, test := range map[string]struct {
		uses    []string
		masters int
		problem string
	}{
		"all the same":    {uses: []string{config, config, config}, masters: 3},
		"the third late":  {uses: []string{config, config, "old"}, masters: 3, problem: "uses other keys"},
		"one is not met":  {uses: []string{config, config}, masters: 3, problem: "2 of 3 API servers have said which keys they use"},
		"more than there": {uses: []string{config, config}, masters: 1},
	} {
		t.Run(name, func(t *testing.T) {
			var turns atomic.Int64
			h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path != "/metrics" {
					list := strings.TrimSuffix(strings.Repeat(`"10.1.0.10",`, test.masters), ",")
					fmt.Fprint(w, `{"items":[{"endpoints":[{"addresses":[`+list+`]}]}]}`)
					return
				}
				n := int(turns.Add(1)-1) % len(test.uses)
				fmt.Fprint(w, encryptionGauge(fmt.Sprintf("sha256:%d", n), test.uses[n]))
			}))
			defer h.Close()
			c, err := kube.New(&rest.Config{Host: h.URL})
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if test.problem != "" {
				time.AfterFunc(time.Second, cancel)
			}
			err = examine.UsesEncryption(ctx, c, []byte(config), io.Discard)
			if (err == nil) != (test.problem == "") || err != nil && !strings.Contains(err.Error(), test.problem) {
				t.Errorf("got %v, want %q", err, test.problem)
			}
		})
	}
}
