package kubelet_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"

	"github.com/hardtack/packer-plugin-hardtack/pkg/node/envfile"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/kubelet"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/machine"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// TestComputed compares what a machine gives its kubelet, beside the image's own document, with the table that hardtack complete
// shows.
func TestComputed(t *testing.T) {
	c, f := config(), facts(t)
	f.Roles = role.NewSet(role.All()...)
	c.Node.Labels = map[string]string{"example.com/disk": "nvme"}
	p, err := kubelet.New(c, f)
	if err != nil {
		t.Fatal(err)
	}
	if p.Files[0].Path != kubelet.KubeletFile {
		t.Fatal(p.Files[0].Path)
	}
	var dropIn, image map[string]any
	if err := yaml.Unmarshal([]byte(p.Files[0].Content), &dropIn); err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(fromImage(t, "/etc/kubernetes/kubelet.yaml"), &image); err != nil {
		t.Fatal(err)
	}
	var got, want []string
	for field := range dropIn {
		if _, said := image[field]; !said {
			got = append(got, field)
		}
	}
	for _, v := range envfile.Parse(p.Files[len(p.Files)-1].Content) {
		if flag, _, ok := strings.Cut(strings.TrimPrefix(v.Value, "--"), "="); ok && strings.HasPrefix(v.Value, "--") {
			got = append(got, "--"+flag)
		}
	}
	for _, m := range machine.AllComputed() {
		name := m.Name
		if !m.IsField {
			name = "--" + name
		}
		if m.Component == "kubelet" {
			want = append(want, name)
		}
	}
	slices.Sort(got)
	slices.Sort(want)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-the table +the machine\n%s", diff)
	}
}
