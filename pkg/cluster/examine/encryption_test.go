package examine_test

import (
	"context"
	"crypto/sha256"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
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
	gauge := func(content string) string {
		return fmt.Sprintf("# TYPE apiserver_encryption_config_controller_last_config_info gauge\n"+
			"apiserver_encryption_config_controller_last_config_info{apiserver_id_hash=\"sha256:aa\",hash=\"sha256:%x\"} 1\n", sha256.Sum256([]byte(content)))
	}
	for name, test := range map[string]struct{ metrics, problem, story string }{
		"the same":        {metrics: gauge(string(config))},
		"another":         {metrics: gauge("old"), problem: "uses other keys: its file was sha256:", story: "waiting for 2m0s"},
		"no such metric":  {metrics: "up 1\n", story: "does not say which keys it uses"},
		"no metrics":      {metrics: "<html>\n", problem: "reading /metrics", story: "waiting"},
		"not an operator": {problem: "GET /metrics: 403 Forbidden", story: "waiting"},
	} {
		t.Run(name, func(t *testing.T) {
			h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if test.metrics == "" || r.URL.Path != "/metrics" {
					w.WriteHeader(http.StatusForbidden)
				}
				fmt.Fprint(w, test.metrics)
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
