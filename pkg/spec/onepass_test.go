package spec_test

import (
	"strings"
	"testing"

	"github.com/hardtack/packer-plugin-hardtack/images"
	"github.com/hardtack/packer-plugin-hardtack/pkg/spec"
	"github.com/hardtack/packer-plugin-hardtack/units"
)

// TestEveryFaultInOnePass: names, types, values, and the flags and fields of components are told together, each with its line
// and its path.
func TestEveryFaultInOnePass(t *testing.T) {
	t.Parallel()
	image, err := spec.ReadImage(units.FS, images.FS)
	if err != nil {
		t.Fatal(err)
	}
	_, _, err = spec.Load(image, "f", []byte(`apiVersion: hardtack.dev/v1
kind: Cluster
name: Demo
version: "1.36.99"
grups: []
groups:
- name: masters
  roles: [master, etcd]
  size: three
kubelet:
  config: {maxPodz: 60}
  flags: {no-such-flag: x}
kubeAPIServer:
  flags: {max-requests-inflight: many}
network: {podCIDR: nope}
`))
	if err == nil {
		t.Fatal("the document was taken")
	}
	for _, want := range []string{
		`f:3: name: "Demo"`, `f:4: version: "1.36.99"`, `f:5: field "grups"`, `f:8: groups[0].roles[0]: `, `f:9: groups[0].size: "three"`,
		`f:11: kubelet.config.maxPodz: `, `f:12: kubelet.flags.no-such-flag: `, `f:14: kubeAPIServer.flags.max-requests-inflight: `, `f:15: network.podCIDR: `,
	} {
		if n := strings.Count(err.Error(), want); n != 1 {
			t.Errorf("%q is told %d times in\n%v", want, n, err)
		}
	}
	// What is only wrong because of another fault is not told.
	if n := strings.Count(err.Error(), "\nf:"); n != 9 {
		t.Errorf("%d findings, want 9:\n%v", n, err)
	}
}

// TestFaultsBesideOthers: a value that is wrong by itself hides no fault of another field, and a field that is not known hides
// none in its line. What is only judged by the wrong value is not told.
func TestFaultsBesideOthers(t *testing.T) {
	t.Parallel()
	image, err := spec.ReadImage(units.FS, images.FS)
	if err != nil {
		t.Fatal(err)
	}
	const several = `apiVersion: hardtack.dev/v1
kind: Cluster
name: demo
store: dir:/srv/store
addons: [cordens]
groups:
- {name: masters, roles: [masters, etcd], size: 1, node: {maxPods: 60}}
- {name: minions, roles: [minions], size: 2}
etcd: {storage: volume}
hooks:
- {name: containerd.service, manifest: "ExecStart=/bin/true"}
fileAssets:
- {path: relative, content: a}
kubelet: {flags: {no-such-flag: x}}
`
	for name, tt := range map[string]struct {
		more  string
		wants []string
		not   string
	}{
		"none":                 {"", nil, ""},
		"a number":             {"network: {mtu: 5, podCIDR: 10.96.0.0/16}", []string{"network.mtu: ", "network.podCIDR: "}, ""},
		"a range":              {"network: {serviceCIDR: nope, dnsAddress: 10.1.0.10}", []string{"network.serviceCIDR: "}, "network.dnsAddress"},
		"a type":               {"proxy: [1]", []string{"proxy: is a list"}, ""},
		"a field of a section": {"api: {prot: 1}", []string{`field "prot"`}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, _, err := spec.Load(image, "f", []byte(several+tt.more))
			if err == nil {
				t.Fatal("the document was taken")
			}
			for _, want := range append(tt.wants, "addons[0]: ", "etcd.storage: ", "hooks[0].name: ", "fileAssets[0].path: ", "kubelet.flags.no-such-flag: ") {
				if n := strings.Count(err.Error(), want); n != 1 {
					t.Errorf("%q is told %d times in\n%v", want, n, err)
				}
			}
			if tt.not != "" && strings.Contains(err.Error(), tt.not) {
				t.Errorf("%s is told:\n%v", tt.not, err)
			}
		})
	}
	_, _, err = spec.Load(image, "f", append(spec.Minimal("demo"), `groups: [{naem: a, roles: [minion], size: x, cpus: 1000}]`...))
	for want, n := range map[string]int{`field "naem"`: 1, ".roles[0]: ": 1, ".size: ": 1, ".cpus: ": 1, ".name: ": 0} {
		if err == nil || strings.Count(err.Error(), want) != n {
			t.Errorf("%q is not told %d times in\n%v", want, n, err)
		}
	}
}
