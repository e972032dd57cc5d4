package etcdtest

import (
	_ "embed"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/mod/modfile"
	"golang.org/x/tools/txtar"

	"github.com/hardtack/packer-plugin-hardtack/images"
	"github.com/hardtack/packer-plugin-hardtack/images/imagestest/programs"
)

// next is what etcd of the next minor version is compiled from.
//
//go:embed next.txtar
var next []byte

// NextPrograms installs etcd, etcdctl and etcdutl of the minor version after that of the images' lock below a directory, and
// returns the directory of the programs and the version, as "3.7.3". What is not in the cache is compiled, which takes minutes.
func NextPrograms(tb testing.TB, root string) (bin, version string) {
	tb.Helper()
	l := programs.DefaultLock(tb)
	c, ok := l.Component("etcd")
	if !ok {
		tb.Fatal("the lock has no etcd")
	}
	image, err := fs.ReadFile(images.FS, c.Modules.Source)
	if err != nil {
		tb.Fatal(err)
	}
	archive := txtar.Parse(next)
	for _, f := range archive.Files {
		if f.Name != "go.mod" {
			continue
		}
		mod, err := modfile.Parse(f.Name, f.Data, nil)
		if err != nil {
			tb.Fatal(err)
		}
		for _, r := range mod.Require {
			if r.Mod.Path == c.Modules.Module {
				version = r.Mod.Version
			}
		}
	}
	for _, f := range txtar.Parse(image).Files {
		if !strings.HasPrefix(f.Name, "go.") {
			archive.Files = append(archive.Files, f)
		}
	}
	programs.InstallFrom(tb, root, l, "etcd", version, txtar.Format(archive))
	return filepath.Join(root, programs.Bin), strings.TrimPrefix(version, "v")
}
