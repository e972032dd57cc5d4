package main

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/hardtack/packer-plugin-hardtack/pkg/zone/zonetest"
)

// Every script runs the program against a BIND of its own: $SERVER, with $KEY that may change the zone
// k8s and $OTHERKEY that may not. With a file "plain" in the script the SOA minimum is 900.
func TestDNSScripts(t *testing.T) {
	if testing.Short() {
		t.Skip("-short was asked for: every script starts a name server")
	}
	b := zonetest.StartBIND(t, zonetest.BINDOptions{})
	slow := zonetest.StartBIND(t, zonetest.BINDOptions{Minimum: 900})
	testscript.Run(t, testscript.Params{
		Dir: "testdata/dns", RequireExplicitExec: true, RequireUniqueNames: true, UpdateScripts: *updateScripts,
		Setup: func(env *testscript.Env) error {
			// Scripts run side by side on one server: each has a cluster of its own, by its name.
			name := strings.TrimPrefix(filepath.Base(env.WorkDir), "script-")
			env.Setenv("CLUSTER", name)
			env.Setenv("SERVER", b.Addr)
			env.Setenv("SLOW", slow.Addr)
			env.Setenv("SLOWKEY", slow.KeyFile)
			env.Setenv("KEY", b.KeyFile)
			env.Setenv("OTHERKEY", b.OtherFile)
			env.Setenv("ON", "--zone-server="+b.Addr)
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
