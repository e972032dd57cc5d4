package build

import (
	"io/fs"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/hardtack/packer-plugin-hardtack/pkg/image/lock"
	"github.com/hardtack/packer-plugin-hardtack/pkg/image/rootfs"
)

// TestBuildShared compiles a main module whose package is in a shared archive, which has a main module of its own.
func TestBuildShared(t *testing.T) {
	const host = "-- go.mod --\nmodule hardtack.invalid/tiny\n\ngo 1.24\n\nrequire hardtack.invalid/nothing v1.2.3\n"
	assets := func(shared string) fs.FS {
		return fstest.MapFS{"modules/host.txtar": {Data: []byte(host)}, "modules/tiny.txtar": {Data: []byte(shared)}}
	}
	c := tinyComponent()
	c.Modules.Source, c.Modules.Shared = "modules/host.txtar", []string{"modules/tiny.txtar"}
	other := strings.Replace(tiny, "v1.2.3", "v9", 1) // what a shared archive requires is not looked at
	b, _ := newBuilder(t, assets(other))
	_, pins, err := b.Build(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	b.Assets = assets(other + "// changed\n")
	if _, again, err := b.Build(t.Context(), c); err != nil || again[0].Source == pins[0].Source {
		t.Errorf("after a change of the shared archive the pin is of %s as before, %v", pins[0].Source, err)
	}
	b.Assets = assets(tiny)
	c.Modules.Shared = []string{"modules/tiny.txtar", "modules/again.txtar"}
	c.Modules.Archives = map[string][]byte{"modules/again.txtar": []byte(tiny)}
	if _, _, err := b.Build(t.Context(), c); err == nil || !strings.Contains(err.Error(), "modules/again.txtar") || !strings.Contains(err.Error(), "has tiny/main.go too") {
		t.Errorf("one file twice: %v", err)
	}
}

// TestLink: what is within another component's program is links to it, if that one is compiled with the same version of it.
func TestLink(t *testing.T) {
	host, guest := tinyComponent(), tinyComponent()
	host.Name = "host"
	guest.Modules.Source = "modules/not-read.txtar"
	for i := range guest.Files {
		guest.Files[i].Within = "/usr/lib/hardtack/bin/tiny"
	}
	b, progress := newBuilder(t, tinyAssets(tiny))
	entries, err := b.Link(guest, []lock.Component{host})
	want := []rootfs.Entry{
		{Path: "/usr/bin/one", Mode: fs.ModeSymlink | 0o777, Link: "../lib/hardtack/bin/tiny", Component: "tiny"},
		{Path: "/usr/bin/two", Mode: fs.ModeSymlink | 0o777, Link: "../lib/hardtack/bin/tiny", Component: "tiny"},
	}
	if diff := cmp.Diff(want, entries); err != nil || diff != "" || len(progress.started) > 0 {
		t.Errorf("%v, built %v (-want +got):\n%s", err, progress.started, diff)
	}
	guest.Version = "v1.2.4"
	if _, err := b.Link(guest, []lock.Component{host}); err == nil || !strings.Contains(err.Error(), "tiny v1.2.4 within the programs of host") ||
		!strings.Contains(err.Error(), "v1.2.3, but the lock says v1.2.4") {
		t.Errorf("another version in the host: %v", err)
	}
}

// TestBuildTakesTheLocksArchive compiles a component of one's own: its archive came with the lock, and Hardtack has none.
func TestBuildTakesTheLocksArchive(t *testing.T) {
	b, progress := newBuilder(t, nil)
	c := tinyComponent()
	c.Modules.Archives = map[string][]byte{c.Modules.Source: []byte(tiny)}
	entries, _, err := b.Build(t.Context(), c)
	if err != nil || len(entries) != 3 || len(progress.started) != 1 {
		t.Fatalf("%d entries after %v, %v", len(entries), progress.started, err)
	}
	c.Modules.Archives = map[string][]byte{c.Modules.Source: []byte(strings.Replace(tiny, "v1.2.3", "v1.2.4", 1))}
	if _, _, err := b.Build(t.Context(), c); err == nil || !strings.Contains(err.Error(), "v1.2.4, but the lock says v1.2.3") {
		t.Errorf("an archive of another version: %v", err)
	}
}
