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
