package main

import (
	"encoding/base64"
	"encoding/json"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// TestStackScripts runs the commands that deploy a cluster.
func TestStackScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata/stack", RequireExplicitExec: true, RequireUniqueNames: true, UpdateScripts: *updateScripts,
		Setup: func(env *testscript.Env) error {
			env.Setenv("AWS_REGION", "")
			env.Setenv("AWS_DEFAULT_REGION", "")
			return nil
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			// json FILE fails unless the file holds one JSON value.
			"json": func(ts *testscript.TestScript, neg bool, args []string) {
				if got := json.Valid([]byte(ts.ReadFile(args[0]))); got == neg {
					ts.Fatalf("%s is JSON: %v", args[0], got)
				}
			},
			// userdata TEMPLATE RESOURCE FILE fails unless the launch template's user data are the file's bytes.
			"userdata": func(ts *testscript.TestScript, neg bool, args []string) {
				var template struct {
					Resources map[string]struct {
						Properties struct {
							LaunchTemplateData struct{ UserData string }
						}
					}
				}
				ts.Check(json.Unmarshal([]byte(ts.ReadFile(args[0])), &template))
				data, err := base64.StdEncoding.DecodeString(template.Resources[args[1]].Properties.LaunchTemplateData.UserData)
				ts.Check(err)
				if same := len(data) > 0 && string(data) == ts.ReadFile(args[2]); same == neg {
					ts.Fatalf("the user data of %s are %s: %v", args[1], args[2], same)
				}
			},
		},
	})
}
