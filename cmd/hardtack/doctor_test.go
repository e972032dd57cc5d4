package main

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// TestDoctorScripts runs each script against a server that answers a path of the API with the file of that name below api/: a list's
// items, and 404 where there is no file and the path is not one of a list. $KUBECONFIG is its kubeconfig. What the checks find in a
// cluster is in pkg/cluster/examine; that a cluster's API server answers so is in TestLab.
func TestDoctorScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata/doctor", RequireExplicitExec: true, RequireUniqueNames: true, UpdateScripts: *updateScripts,
		Setup: func(env *testscript.Env) error {
			h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				items, err := os.ReadFile(filepath.Join(env.WorkDir, "api", filepath.Base(r.URL.Path)))
				if err != nil && !strings.HasPrefix(r.URL.Path, "/api") {
					http.NotFound(w, r)
					return
				}
				w.Header().Set("Content-Type", "application/json")
				_, _ = w.Write([]byte(`{"items":[` + string(items) + `]}`))
			}))
			env.Defer(h.Close)
			env.Setenv("HOME", env.WorkDir)
			env.Setenv("KUBECONFIG", filepath.Join(env.WorkDir, "kubeconfig"))
			return os.WriteFile(filepath.Join(env.WorkDir, "kubeconfig"), []byte("apiVersion: v1\nkind: Config\ncurrent-context: a\ncontexts: [{name: a, context: {cluster: a, user: a}}]\n"+
				"clusters: [{name: a, cluster: {server: \""+h.URL+"\"}}]\nusers: [{name: a, user: {}}]\n"), 0o600)
		},
	})
}
