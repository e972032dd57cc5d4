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
// what sideways names. Top is everything under cmd, the Lambda's programs, the scripts' programs, and the packages that drive machines.
var layers = []struct {
	name     string
	why      string
	packages []string
}{
	{"base", "every package may use these, so they use none of ours", []string{"pkg/role", "pkg/base", "pkg/node/envfile", "pkg/node/imds", "pkg/awsfake/moto"}},
	{"pure", "values to values: tested as tables, without a machine", []string{
		"pkg/image/lock", "pkg/image/unit", "pkg/image/rootfs", "pkg/node/userdata", "pkg/node/machine", "pkg/node/notice", "pkg/dns/record", "pkg/dns/shipped", "pkg/dns/doctor", "pkg/spec", "pkg/pki", "pkg/etcd", "pkg/cluster/terraform", "pkg/disk/gpt", "pkg/disk/verity", "pkg/disk/uki",
	}},
	{"use case", "it declares the interfaces that it needs and knows no adapter", []string{"pkg/image/bake", "pkg/node", "pkg/node/notice/watch", "pkg/dns/reconcile", "pkg/dns/prepare", "pkg/dns/check", "pkg/pki/authority", "pkg/pki/registry", "pkg/ami", "pkg/cluster/rollout", "pkg/cluster/examine", "pkg/cluster/preflight", "pkg/etcd/operate", "pkg/monitoring"}},
	{"adapter", "adapters satisfy the use cases' interfaces and never import each other", []string{
		"pkg/image/cache", "pkg/image/oci", "pkg/image/containerd", "pkg/image/build", "pkg/image/fetch", "pkg/disk", "pkg/dns/lookup", "pkg/node/exporter", "pkg/node/kube", "pkg/node/identity", "pkg/node/probe", "pkg/node/systemd", "pkg/node/lifecycle", "pkg/node/volume", "pkg/dns/fleet", "pkg/dns/zone",
		"pkg/dns/deployment", "pkg/pki/store", "pkg/pki/publish", "pkg/etcd/gateway", "pkg/etcd/cloud", "pkg/etcd/backup", "pkg/ami/cloud", "pkg/cluster/cloudformation", "pkg/cluster/autoscaling", "pkg/lab/qemu", "pkg/lab/vnet", "pkg/awsfake",
	}},
	{"assets", "plain files, embedded", []string{"images", "units", "lambda"}},
	{"region", "what Lambda, the lab, the stack commands and the programs on a machine wire up from all below", []string{"pkg/node/command", "pkg/image", "pkg/dns/function", "pkg/cluster", "pkg/cluster/template", "pkg/lab"}},
	{"top", "translation only", []string{"cmd", "lambda/function", "lambda/pack", "scripts/mutants", "pkg/e2e", "pkg/etcd/etcdtest"}},
}

// sideways lists the imports inside one layer that are meant.
var sideways = map[string][]string{
	"pkg/base/awsconfig":        {"pkg/base/awshttp", "pkg/node/imds"}, // the SDK's configuration takes that client, and the machine's metadata
	"pkg/base/account":          {"pkg/role"},                          // the tags
	"pkg/base/awsuser":          {"pkg/base/awshttp"},
	"pkg/role":                  {"pkg/base/problem/near"},                                                                                   // a name that is nearly a role's is a slip
	"pkg/base/problem/yamlfile": {"pkg/base/problem/near"},                                                                                   // what somebody may have meant
	"pkg/awsfake/moto":          {"pkg/base/run", "pkg/base/judges"},                                                                         // it is a process
	"pkg/dns/doctor":            {"pkg/dns/shipped"},                                                                                         // a deployment is compared with the template
	"pkg/spec":                  {"pkg/node/machine", "pkg/node/notice", "pkg/image/unit", "pkg/node/userdata", "pkg/pki", "pkg/pki/issuer"}, // what a machine is told, what is done about its notices, which flags the units have, whether the user data can be read, and where an issuer has its keys
	"pkg/image/build":           {"pkg/image/cache", "pkg/image/oci"},                                                                        // what it builds is kept there, and the pause image is written as one
	"pkg/image/fetch":           {"pkg/image/cache", "pkg/image/oci", "pkg/image/containerd", "pkg/image/build"},                             // what has no release is built
	"pkg/image/bake/baketest":   {"pkg/image/oci"},                                                                                           // the pause image
	"pkg/image/containerd":      {"pkg/image/cache", "pkg/image/oci"},                                                                        // what it unpacks, and where it keeps it
	"pkg/image/rootfs":          {"pkg/image/unit"},                                                                                          // the links that enable a unit come from its [Install] section
	"pkg/dns/prepare":           {"pkg/dns/reconcile"},                                                                                       // the contract of a zone, and its errors
	"pkg/dns/check":             {"pkg/dns/reconcile", "pkg/dns/prepare"},                                                                    // as above
	"pkg/cluster":               {"pkg/cluster/template"},                                                                                    // what it deploys
	"pkg/lab":                   {"pkg/dns/function", "pkg/cluster", "pkg/cluster/template"},                                                 // the same handler as the Lambda, and the stack of AWS
	// one table of reasons, and one way to wait
	"pkg/node/boot":    {"pkg/node/reason", "pkg/node/config"},
	"pkg/node/certs":   {"pkg/node/reason", "pkg/node/config"}, // what it compares with the store's word
	"pkg/node/config":  {"pkg/node/reason"},
	"pkg/node/kubelet": {"pkg/node/reason"},
	"pkg/node/ready":   {"pkg/node/reason", "pkg/node/timeline"},
	"pkg/node/wait":    {"pkg/node/reason"},
	"pkg/disk/debian":  {"pkg/disk/chroot"}, // a base system is made ready by commands that run in it
}

// outside lists who alone may import modules that spread through whatever touches them, and what
// pure packages must not reach: a package with all below it, or with $ at its end that package alone.
var outside = []struct {
	prefix  string
	allowed []string
	why     string
}{
	{"github.com/hashicorp/packer-plugin-sdk", []string{"cmd/packer-plugin-hardtack"}, "Packer's types stay at its edge"},
	{"github.com/hashicorp/packer/", nil, "Packer is a tool to run, never a library (BUSL-1.1)"},
	{"github.com/coreos/go-systemd", []string{"pkg/image/unit", "pkg/image/tree", "pkg/node/systemd", "pkg/node/lifecycle"}, "units are parsed in one place, and the service manager is talked to in one"},
	{"github.com/aws/aws-sdk-go-v2", []string{"pkg/ami/cloud", "pkg/etcd/cloud", "pkg/etcd/backup", "pkg/cluster$", "pkg/cluster/cloudformation", "pkg/cluster/autoscaling", "pkg/base/awsconfig", "pkg/base/account", "pkg/base/awsuser", "pkg/node/lifecycle", "pkg/node/identity", "pkg/node/volume", "pkg/dns/fleet", "pkg/dns/zone", "pkg/awsfake", "pkg/pki/store", "pkg/pki/publish", "pkg/dns/deployment", "pkg/dns/function", "pkg/lab", "cmd/hardtack"}, "AWS's types stay in the adapters"},
	{"github.com/miekg/dns", []string{"pkg/dns/zone", "pkg/dns/lookup", "pkg/lab/vnet"}, "v1 is in maintenance: kept behind the packages that ask and, for the lab's machines, answer"},
	{"github.com/containerd/containerd", []string{"pkg/image/containerd"}, "containerd's databases are written in one place"},
	{"gvisor.dev/gvisor", []string{"pkg/lab/vnet"}, "a TCP/IP stack is seen through net.Conn and net.Listener only"},
	{"k8s.io/client-go", []string{"pkg/node/kube", "pkg/e2e"}, "the API server's client stays in its adapter"},
	{"github.com/sigstore/", []string{"pkg/image/fetch"}, "signatures are verified where files arrive"},
	{"github.com/lima-vm/go-qcow2reader", []string{"pkg/disk/qcow2"}, "formats of disk images are read in one place"},
	{"net/http", []string{"pkg/ami/cloud", "pkg/etcd/gateway", "pkg/etcd/backup", "pkg/base/awshttp", "pkg/node/exporter", "pkg/node/kube", "pkg/node/identity", "pkg/pki/publish", "pkg/image/fetch", "pkg/node/imds/imdstest", "pkg/awsfake", "pkg/dns/fleet", "pkg/dns/zone", "pkg/node/probe", "pkg/lab/vnet/metadata", "pkg/lab", "pkg/e2e", "cmd/hardtack"}, "pure packages and use cases open no connection"},
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

// notInReader lists what must not be linked into cmd/hardtack-userdata, and why. Every boot waits for this program, and what
// is linked into it is read from a cold disk and initialised before its first line, whether it is used or not.
var notInReader = []struct{ prefix, why string }{
	{"github.com/aws/", "a fourth of what the agent does before its first line is one package of the SDK"},
	{"k8s.io/", "another fourth; the reader calls no API server"},
	{"sigs.k8s.io/", "as k8s.io"},
	{"net/http", "3 of 8 MB, and a seventh of the code that runs: pkg/node/imds speaks what it needs of it"},
	{"crypto/tls", "the reader speaks to nobody by TLS"},
	{"google.golang.org/", "no program on the way to a role speaks gRPC or protocol buffers"},
}

// maxReaderPackages bounds what is linked into the reader of user data, the standard library included; the
// agent has more than twice as many. A package more is a decision: the figure is raised with what scripts/bench-reader says.
const maxReaderPackages = 165

// TestReaderImports checks what the program is linked from that reads the user data.
func TestReaderImports(t *testing.T) {
	packages := linkedFrom(t, "hardtack-userdata")
	if !slices.Contains(packages, module+"/pkg/node/boot") {
		t.Fatalf("the reader has no pkg/node/boot: %v", packages)
	}
	for _, path := range packages {
		for _, not := range notInReader {
			if strings.HasPrefix(path, not.prefix) {
				t.Errorf("cmd/hardtack-userdata is linked from %s: %s (go list -deps shows the way)", path, not.why)
			}
		}
	}
	if len(packages) > maxReaderPackages {
		t.Errorf("cmd/hardtack-userdata is linked from %d packages, over %d", len(packages), maxReaderPackages)
	}
	t.Logf("%d packages", len(packages))
}

// TestAgentImports: newer clients of the SDK have a package of schemas, whose tables are made whenever a program starts that is
// linked with them: of SSM they take more than half of what the agent allocates before its main, and a fifth of the time of an
// emulated processor until there. A boot starts the agent for several units.
func TestAgentImports(t *testing.T) {
	packages := linkedFrom(t, "hardtack-agent")
	if !slices.Contains(packages, "github.com/aws/aws-sdk-go-v2/service/ssm") {
		t.Fatal("the agent has no client of SSM")
	}
	for _, path := range packages {
		if strings.HasPrefix(path, "github.com/aws/") && strings.HasSuffix(path, "/schemas") {
			t.Errorf("cmd/hardtack-agent is linked from %s: keep the last version of the client without it (GODEBUG=inittrace=1 shows what it takes)", path)
		}
	}
}

// linkedFrom lists the packages that a program is linked from.
func linkedFrom(t *testing.T, program string) []string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", module+"/cmd/"+program).Output()
	if err != nil {
		t.Fatalf("listing packages: %v", err)
	}
	return strings.Fields(string(out))
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
		if !slices.ContainsFunc(rule.allowed, func(p string) bool { return strings.HasPrefix(from+"$", p) }) {
			t.Errorf("%s imports %s: %s; only %v may", from, path, rule.why, rule.allowed)
		}
	}
}

// sameProgram reports whether two packages under cmd belong to one program.
func sameProgram(a, b string) bool {
	x, y := strings.Split(a, "/"), strings.Split(b, "/")
	return len(x) > 1 && len(y) > 1 && x[0] == y[0] && x[1] == y[1]
}

// layerOf is the layer of the longest entry of the table that is the package or a directory above it; -1 is none.
func layerOf(path string) int {
	layer, longest := -1, ""
	for i, l := range layers {
		for _, p := range l.packages {
			if (path == p || strings.HasPrefix(path, p+"/")) && len(p) > len(longest) {
				layer, longest = i, p
			}
		}
	}
	return layer
}
