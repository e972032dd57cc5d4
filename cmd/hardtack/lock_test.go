package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/hardtack/packer-plugin-hardtack/pkg/image/lock"
)

var updateScripts = flag.Bool("update", false, "write the expected files of the scripts anew")

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"hardtack": main})
}

// upstream serves the files of a directory, logs the requests in the file requests, and never finishes an answer for
// slow.example.
func upstream(work string) http.Handler {
	var mu sync.Mutex
	files := http.FileServer(http.Dir(filepath.Join(work, "upstream")))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		f, err := os.OpenFile(filepath.Join(work, "requests"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
		if err == nil {
			_, err = fmt.Fprintln(f, r.URL.Path)
			err = errors.Join(err, f.Close())
		}
		mu.Unlock()
		switch {
		case err != nil:
			http.Error(w, err.Error(), http.StatusInternalServerError)
		case strings.HasPrefix(r.URL.Path, "/slow.example/"):
			_, _ = fmt.Fprintln(w, "the beginning")
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		default:
			files.ServeHTTP(w, r)
		}
	})
}

// Every script runs the program as a user does. $UPSTREAM serves the script's directory upstream, in a
// mirror's layout, and $CACHE is empty.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script", RequireExplicitExec: true, RequireUniqueNames: true, UpdateScripts: *updateScripts,
		Setup: func(env *testscript.Env) error {
			server := httptest.NewServer(upstream(env.WorkDir))
			env.Defer(server.Close)
			env.Setenv("UPSTREAM", server.URL)
			env.Setenv("CACHE", filepath.Join(env.WorkDir, "cache"))
			env.Setenv("HOME", filepath.Join(env.WorkDir, "home"))
			return nil
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			// json FILE fails unless the file holds one JSON value.
			"json": func(ts *testscript.TestScript, neg bool, args []string) {
				if got := json.Valid([]byte(ts.ReadFile(args[0]))); got == neg {
					ts.Fatalf("%s is JSON: %v", args[0], got)
				}
			},
		},
	})
}

// The locks of this program are locks.
func TestOwnLocks(t *testing.T) {
	names := ownLocks()
	if len(names) == 0 {
		t.Fatal("there are none")
	}
	for _, name := range names {
		l, err := readLock(name)
		if err != nil {
			t.Error(err)
			continue
		}
		if l.Name != name || l.Kubernetes() == "" || len(l.Placements(lock.FromRelease)) == 0 {
			t.Errorf("%s is called %s, has Kubernetes %q", name, l.Name, l.Kubernetes())
		}
	}
}

func TestReplaceFileKeepsTheModeAndTheOldContentAtAnError(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "x.lock.yaml")
	if err := os.WriteFile(file, []byte("old"), 0o640); err != nil {
		t.Fatal(err)
	}
	if err := replaceFile(file, []byte("new")); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(file)
	data, _ := os.ReadFile(file)
	if err != nil || info.Mode().Perm() != 0o640 || string(data) != "new" {
		t.Errorf("%v %q, %v", info.Mode(), data, err)
	}
	if err := replaceFile(filepath.Join(dir, "none"), nil); err == nil {
		t.Error("a file that is not there was written")
	}
	if entries, _ := os.ReadDir(dir); len(entries) != 1 {
		t.Errorf("left behind: %v", entries)
	}
}
