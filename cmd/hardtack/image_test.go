package main

import (
	"encoding/json"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/hardtack/packer-plugin-hardtack/pkg/awsfake"
)

// TestImageScripts runs each script on its own account with two regions; us-west-2 is its home.
func TestImageScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata/image", RequireExplicitExec: true, RequireUniqueNames: true, UpdateScripts: *updateScripts,
		Setup: func(env *testscript.Env) error {
			account := awsfake.New(awsfake.Options{
				Regions: []string{"us-east-1"}, Rates: map[string]float64{"ssm:PutParameter": 0}, EBS: awsfake.EBSOptions{Directory: env.WorkDir},
			})
			account.SetPolicy("AKIDNOBODY", awsfake.Policy{})
			server := httptest.NewServer(account.Handler())
			env.Defer(func() {
				server.Close()
				_ = account.Close()
			})
			env.Values["account"] = account
			for k, v := range map[string]string{
				"AWS_ENDPOINT_URL": server.URL, "AWS_REGION": "us-west-2", "AWS_ACCESS_KEY_ID": "AKIDEXAMPLE", "AWS_SECRET_ACCESS_KEY": "secret",
				"AWS_CONFIG_FILE": "/dev/null", "AWS_SHARED_CREDENTIALS_FILE": "/dev/null", "HOME": env.WorkDir, "XDG_STATE_HOME": env.WorkDir + "/state",
			} {
				env.Setenv(k, v)
			}
			return nil
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"disk": writeDisk, "field": setField, "left": whatIsLeft, "stall": stallCalls, "until": untilCalled,
		},
	})
}

// disk FILE MIB TEXT AT… makes a sparse disk of that size or changes one, with text at these MiB.
func writeDisk(ts *testscript.TestScript, _ bool, args []string) {
	f, err := os.OpenFile(ts.MkAbs(args[0]), os.O_CREATE|os.O_RDWR, 0o644)
	ts.Check(err)
	defer f.Close()
	size, err := strconv.ParseInt(args[1], 10, 64)
	ts.Check(err)
	ts.Check(f.Truncate(size << 20))
	for _, text := range args[3:] {
		at, err := strconv.ParseInt(text, 10, 64)
		ts.Check(err)
		_, err = f.WriteAt([]byte(strings.Repeat(args[2], 1000)), at<<20)
		ts.Check(err)
	}
}

// field NAME FILE PATH… sets a variable to a value in a JSON file.
func setField(ts *testscript.TestScript, _ bool, args []string) {
	var v any
	ts.Check(json.Unmarshal([]byte(ts.ReadFile(args[1])), &v))
	for _, step := range args[2:] {
		switch at := v.(type) {
		case map[string]any:
			v = at[step]
		case []any:
			i, err := strconv.Atoi(step)
			ts.Check(err)
			v = at[i]
		}
	}
	text, ok := v.(string)
	if !ok {
		ts.Fatalf("%s: %v is %v", args[1], args[2:], v)
	}
	ts.Setenv(args[0], text)
}

func accountOf(ts *testscript.TestScript) *awsfake.Account {
	return ts.Value("account").(*awsfake.Account)
}

// left IMAGES SNAPSHOTS checks how many there are in the home region.
func whatIsLeft(ts *testscript.TestScript, _ bool, args []string) {
	m := accountOf(ts).Images()
	if images, snapshots := strconv.Itoa(len(m.List())), strconv.Itoa(len(m.Snapshots())); images != args[0] || snapshots != args[1] {
		ts.Fatalf("there are %s images and %s snapshots, want %v", images, snapshots, args)
	}
}

// stall ACTION [REFUSED] has the account never answer such a call, and refuse the other one; without one, all are answered.
func stallCalls(ts *testscript.TestScript, _ bool, args []string) {
	if len(args) == 0 {
		accountOf(ts).SetFaults(nil)
		return
	}
	accountOf(ts).SetFaults(awsfake.FaultFunc(func(c awsfake.Call) awsfake.Fault {
		if c.Action == args[0] {
			return awsfake.Fault{Delay: time.Hour}
		}
		if len(args) > 1 && c.Action == args[1] {
			return awsfake.Fault{Refuse: &awsfake.Error{Code: "UnauthorizedOperation", Status: 403}}
		}
		return awsfake.Fault{}
	}))
}

// until SERVICE:ACTION [N] waits until N such calls have come, or one.
func untilCalled(ts *testscript.TestScript, _ bool, args []string) {
	n := 1
	if len(args) > 1 {
		var err error
		n, err = strconv.Atoi(args[1])
		ts.Check(err)
	}
	for accountOf(ts).Calls()[args[0]] < n {
		time.Sleep(5 * time.Millisecond)
	}
}
