package machine

import (
	"strings"
	"testing"
)

// TestAddonImages: what is an image's reference, and what an add-on may not be given as one.
func TestAddonImages(t *testing.T) {
	digest := "@sha256:" + strings.Repeat("0a", 32)
	for image, want := range map[string]bool{
		"registry.k8s.io/a/b:v1": true, "registry.k8s.io/a/b" + digest: true, "registry.k8s.io/a/b:v1" + digest: true, "localhost:5000/b:1": true,
		"localhost:5000/b": false, "b:v1": false, "registry.k8s.io/a/b": false, "registry.k8s.io/a/b@sha256:0a": false, "registry.k8s.io/A:v1": false, "registry.k8s.io/a:v1 x": false, "": false,
		"registry.k8s.io/a/b:v1\nx": false, "registry.k8s.io/a/b:${X}": false,
	} {
		if IsImage(image) != want {
			t.Errorf("%q is an image: %v", image, !want)
		}
	}
	_, problems := Parse("m.yaml", []byte("apiVersion: hardtack.dev/v1\nkind: Machine\naddonImages: {Bad: registry.k8s.io/a:1, good: none}\n"))
	if got, want := problems.Err().Error(), `m.yaml:3: addonImages: "Bad" is not a DNS label
m.yaml:3: addonImages.good: "none" is not an image's reference with its registry, and a tag or a digest`; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}
