// Package pkg holds the test of who may import what.
package pkg

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/hardtack/packer-plugin-hardtack"

// A layer may import what stands in the layers above it in this list, and within its own layer only
// what sideways names. Top is everything under cmd and lambda, and the packages that drive machines.
var layers = []struct {
	name     string
	why      string
	packages []string
}{
	{"leaf", "every package may use a leaf, so a leaf uses none of ours", []string{"pkg/role", "pkg/problem", "pkg/run", "pkg/version", "pkg/awshttp", "pkg/awsconfig", "pkg/moto"}},
	{"pure", "values to values: tested as tables, without a machine", []string{"pkg/component", "pkg/unit", "pkg/userdata", "pkg/rootfs", "pkg/record", "pkg/machine", "pkg/spec", "pkg/pki", "pkg/doctor"}},
	{"use case", "it declares the interfaces that it needs and knows no adapter", []string{"pkg/bake", "pkg/agent", "pkg/dnssync", "pkg/authority", "pkg/publish", "pkg/rollout"}},
	{"adapter", "adapters satisfy the use cases' interfaces and never import each other", []string{"pkg/fetch", "pkg/imds", "pkg/debian", "pkg/chroot", "pkg/disk", "pkg/qemu", "pkg/kube", "pkg/fleet", "pkg/zone", "pkg/awsfake", "pkg/vnet", "pkg/probe", "pkg/systemd", "pkg/lifecycle", "pkg/store", "pkg/deployment", "pkg/diskfile", "pkg/ami", "pkg/formation", "pkg/scaling"}},
	{"assets", "plain files, embedded", []string{"images", "units"}},
	{"region", "what Lambda and the lab wire up from all below", []string{"pkg/function", "pkg/stack", "pkg/lab"}},
	{"top", "translation only", []string{"cmd/", "lambda", "pkg/e2e"}},
}

// sideways lists the imports inside one layer that are meant.
var sideways = map[string][]string{
	"pkg/awsconfig": {"pkg/awshttp"},                             // the SDK's configuration takes that client
	"pkg/moto":      {"pkg/run"},                                 // it is a process
	"pkg/spec":      {"pkg/machine", "pkg/unit", "pkg/userdata"}, // what a machine is told, which flags the units have, and whether the user data can be read
	"pkg/rootfs":    {"pkg/unit"},                                // the links that enable a unit come from its [Install] section
	"pkg/lab":       {"pkg/function"},                            // the same handler as the Lambda
	// one table of reasons, and one way to wait
	"pkg/agent":        {"pkg/agent/reason"},
	"pkg/agent/certs":  {"pkg/agent/reason"},
	"pkg/agent/config": {"pkg/agent/reason"},
	"pkg/agent/node":   {"pkg/agent/reason"},
	"pkg/agent/ready":  {"pkg/agent/reason", "pkg/agent/timeline"},
	"pkg/agent/wait":   {"pkg/agent/reason"},
	"pkg/debian":       {"pkg/chroot"}, // a base system is made ready by commands that run in it
}

// outside lists who alone may import modules that spread through whatever touches them, and what
// pure packages must not reach.
var outside = []struct {
	prefix  string
	allowed []string
	why     string
}{
	{"github.com/hashicorp/packer-plugin-sdk", []string{"cmd/packer-plugin-hardtack"}, "Packer's types stay at its edge"},
	{"github.com/hashicorp/packer/", nil, "Packer is a tool to run, never a library (BUSL-1.1)"},
	{"github.com/coreos/go-systemd", []string{"pkg/unit", "pkg/rootfs", "pkg/systemd", "pkg/lifecycle"}, "units are parsed in one place, and the service manager is talked to in one"},
	{"github.com/aws/aws-sdk-go-v2", []string{"pkg/ami", "pkg/formation", "pkg/scaling", "pkg/awsconfig", "pkg/lifecycle", "pkg/fleet", "pkg/zone", "pkg/awsfake", "pkg/store", "pkg/deployment", "pkg/function", "pkg/lab", "cmd/hardtack", "lambda"}, "AWS's types stay in the adapters"},
	{"github.com/miekg/dns", []string{"pkg/zone", "pkg/vnet", "cmd/hardtack"}, "v1 is in maintenance: kept behind the packages that ask and, for the lab's machines, answer"},
	{"gvisor.dev/gvisor", []string{"pkg/vnet"}, "a TCP/IP stack is seen through net.Conn and net.Listener only"},
	{"k8s.io/client-go", []string{"pkg/kube", "pkg/e2e"}, "the API server's client stays in its adapter"},
	{"github.com/sigstore/", []string{"pkg/fetch"}, "signatures are verified where files arrive"},
	{"github.com/lima-vm/go-qcow2reader", []string{"pkg/diskfile"}, "formats of disk images are read in one place"},
	{"net/http", []string{"pkg/ami", "pkg/awshttp", "pkg/awsconfig", "pkg/kube", "pkg/fetch", "pkg/imds", "pkg/awsfake", "pkg/fleet", "pkg/zone", "pkg/probe", "pkg/vnet/metadata", "pkg/lab", "pkg/e2e", "cmd/hardtack", "lambda"}, "pure packages and use cases open no connection"},
}

func TestImportsGoDown(t *testing.T) {
	// Without the e2e packages' tests: what tests import is their own affair.
	out, err := exec.CommandContext(t.Context(), "go", "list", "-f", `{{.ImportPath}} {{join .Imports " "}}`, module+"/...").Output()
	if err != nil {
		t.Fatalf("listing packages: %v", err)
	}
	for line := range strings.Lines(string(out)) {
		fields := strings.Fields(line)
		from := strings.TrimPrefix(fields[0], module+"/")
		if from == "pkg" {
			continue
		}
		if layerOf(from) < 0 {
			t.Errorf("%s is in no layer: add it to the table with the layer it belongs to", from)
			continue
		}
		for _, path := range fields[1:] {
			if to, ours := strings.CutPrefix(path, module+"/"); ours {
				checkOurs(t, from, to)
			} else {
				checkOutside(t, from, path)
			}
		}
	}
}

func checkOurs(t *testing.T, from, to string) {
	t.Helper()
	a, b := layerOf(from), layerOf(to)
	top := len(layers) - 1
	switch {
	case b < 0, b < a, slices.Contains(sideways[from], to), strings.HasPrefix(from, to+"/"):
	case a == top && b == top && sameProgram(from, to):
	default:
		t.Errorf("%s (%s) imports %s (%s): %s", from, layers[a].name, to, layers[b].name, layers[a].why)
	}
}

func checkOutside(t *testing.T, from, path string) {
	t.Helper()
	for _, rule := range outside {
		if !strings.HasPrefix(path, rule.prefix) {
			continue
		}
		if !slices.ContainsFunc(rule.allowed, func(p string) bool { return strings.HasPrefix(from, p) }) {
			t.Errorf("%s imports %s: %s; only %v may", from, path, rule.why, rule.allowed)
		}
	}
}

// sameProgram reports whether two packages under cmd belong to one program.
func sameProgram(a, b string) bool {
	x, y := strings.Split(a, "/"), strings.Split(b, "/")
	return len(x) > 1 && len(y) > 1 && x[0] == y[0] && x[1] == y[1]
}

func layerOf(path string) int {
	return slices.IndexFunc(layers, func(l struct {
		name     string
		why      string
		packages []string
	}) bool {
		return slices.ContainsFunc(l.packages, func(p string) bool {
			return path == p || strings.HasSuffix(p, "/") && strings.HasPrefix(path, p) || strings.HasPrefix(path, p+"/")
		})
	})
}
