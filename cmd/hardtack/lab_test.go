//go:build linux

package main

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/hardtack/packer-plugin-hardtack/pkg/lab"
	"github.com/hardtack/packer-plugin-hardtack/pkg/lab/qemu"
)

// TestLabScripts gives each script its own labs, whose machines have an empty disk: they get power, and their firmware
// finds nothing to boot. pkg/e2e tests real machines.
func TestLabScripts(t *testing.T) {
	if testing.Short() {
		t.Skip("-short was asked for: the scripts start virtual machines")
	}
	if _, err := qemu.Detect(); err != nil {
		t.Skipf("no machine can be started: %v", err)
	}
	qemuImg, err := exec.LookPath("qemu-img")
	if err != nil {
		t.Skipf("no disk can be made: %v (install Debian's package qemu-utils)", err)
	}
	testscript.Run(t, testscript.Params{
		Dir: "testdata/lab", RequireExplicitExec: true, RequireUniqueNames: true, UpdateScripts: *updateScripts,
		Setup: func(env *testscript.Env) error {
			// A script that fails half way leaves its labs up.
			env.Defer(func() { endLabs(t, filepath.Join(env.Getenv("XDG_STATE_HOME"), "hardtack", "labs")) })
			// Below a path that is longer than a socket's may be.
			env.Setenv("XDG_STATE_HOME", filepath.Join(env.WorkDir, "a-directory-for-state-with-a-long-name", "and-another-one-below-it-with-a-long-name"))
			env.Setenv("HOME", env.WorkDir)
			return exec.Command(qemuImg, "create", "-q", "-f", "qcow2", filepath.Join(env.WorkDir, "empty.qcow2"), "16M").Run()
		},
	})
}

// endLabs ends every lab below root.
func endLabs(t *testing.T, root string) {
	t.Helper()
	homes, err := lab.Homes(root)
	if err != nil {
		t.Error(err)
	}
	for _, h := range homes {
		if err := h.Abandon(context.Background(), time.Minute); err != nil {
			t.Errorf("ending lab %s: %v", h.Name, err)
		}
	}
}

// TestLabCompletion: a running lab's machines and groups are offered wherever a command takes them.
func TestLabCompletion(t *testing.T) {
	t.Setenv("XDG_STATE_HOME", t.TempDir())
	root, err := lab.DefaultRoot(os.Getenv)
	ok(t, err)
	ok(t, os.MkdirAll(filepath.Join(root, "demo"), 0o700))
	listener, err := net.Listen("unix", filepath.Join(root, "demo", "api.sock"))
	ok(t, err)
	defer func() { _ = listener.Close() }()
	go http.Serve(listener, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { //nolint:errcheck,gosec // until the test ends
		_ = json.NewEncoder(w).Encode(lab.Status{
			Groups:   []lab.GroupStatus{{Name: "masters-a"}, {Name: "minions"}},
			Machines: []lab.MachineStatus{{ID: "i-1", Group: "masters-a", Power: "on"}, {ID: "i-2", Group: "minions", Power: "on"}, {ID: "i-3", Group: "minions", Power: "on"}},
		})
	}))
	for line, want := range map[string]string{
		"lab scale ":                    "masters-a minions",
		"lab scale minions ":            "",
		"lab cp ":                       "i-1: i-2: i-3: masters-a:",
		"lab cp here i-":                "i-1: i-2: i-3:",
		"lab cp masters-a:/etc/hosts ":  "",
		"lab cp masters-a : /etc/hosts": "", // bash's three words
		"lab logs ":                     "i-1 i-2 i-3 masters-a",
		"lab logs i-1 i-":               "i-2 i-3",
		"lab kill i-1 ":                 "",
	} {
		var got []string
		for _, c := range candidates(t.Context(), newApp(io.Discard, io.Discard), strings.Split("hardtack "+line, " ")) {
			got = append(got, c.word)
		}
		if text := strings.Join(got, " "); text != want {
			t.Errorf("%q: %s, want %s", line, text, want)
		}
	}
}

// TestShellWords: a real shell gets the words that the user's own had.
func TestShellWords(t *testing.T) {
	t.Parallel()
	for _, words := range [][]string{{"printf", "<%s>", "a b", "it's", `"$HOME"`, "", `\n`, "--json"}, {"printf '<%s>' one two | tr o 0"}} {
		out, err := exec.CommandContext(t.Context(), "bash", "-c", shellWords(words)).CombinedOutput()
		want := `<a b><it's><"$HOME"><><\n><--json>`
		if len(words) == 1 {
			want = "<0ne><tw0>"
		}
		if err != nil || string(out) != want {
			t.Errorf("%q: %v, %s, want %s", words, err, out, want)
		}
	}
}
