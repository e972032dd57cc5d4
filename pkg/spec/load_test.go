package spec_test

import (
	"strings"
	"testing"

	"github.com/hardtack/packer-plugin-hardtack/images"
	"github.com/hardtack/packer-plugin-hardtack/pkg/spec"
	"github.com/hardtack/packer-plugin-hardtack/units"
)

func TestLoad(t *testing.T) {
	image, err := spec.ReadImage(units.FS, images.FS)
	if err != nil {
		t.Fatal(err)
	}
	complete, warnings, err := spec.Load(image, "minimal", spec.Minimal("demo"))
	if err != nil || len(warnings) > 0 || complete.Cluster.Name != "demo" {
		t.Errorf("%+v, %v, %v", complete, warnings, err)
	}
	for text, want := range map[string]string{
		"kind: Other\n": "reading the cluster:",
		string(spec.Minimal("demo")) + "nodename: a\n":         "nodename",
		string(spec.Minimal("Not a name")):                     "Not a name",
		string(spec.Minimal("demo")) + "api: {port: 123456}\n": "123456",
	} {
		if _, _, err := spec.Load(image, "cluster.yaml", []byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v; want %q", text, err, want)
		}
	}
}
