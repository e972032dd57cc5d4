package bake_test

import (
	"strings"
	"testing"

	"github.com/hardtack/packer-plugin-hardtack/pkg/image/bake"
	"github.com/hardtack/packer-plugin-hardtack/pkg/image/rootfs"
)

// An archive of several images is there once. Two archives of one path are an error: one would be in no image.
func TestContainerEntries(t *testing.T) {
	at := func(name, file, content string) bake.Container {
		e := rootfs.Bytes(bake.FromContainers, "/usr/lib/hardtack/images/"+file, 0o644, []byte(content))
		return bake.Container{Name: name, Path: e.Path, Entry: e}
	}
	unpacked := bake.Container{Name: "d:1", Path: "/usr/lib/hardtack/images/d"}
	list := []bake.Container{at("a:1", "one.tar", "x"), at("b:1", "one.tar", "x"), at("c:1", "two.tar", "x"), unpacked}
	if got, err := bake.ContainerEntries(list); err != nil || len(got) != 2 {
		t.Errorf("%+v, %v", got, err)
	}
	if got, err := bake.ContainerEntries(append(list, at("e:1", "two.tar", "y"))); err == nil || !strings.Contains(err.Error(), "c:1 and e:1") {
		t.Errorf("%+v, %v", got, err)
	}
}
