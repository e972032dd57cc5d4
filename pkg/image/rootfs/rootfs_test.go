package rootfs_test

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"gotest.tools/v3/golden"

	"github.com/hardtack/packer-plugin-hardtack/pkg/image/rootfs"
)

// inputs has something of every kind.
func inputs() rootfs.Inputs {
	return rootfs.Inputs{
		Files: []rootfs.Entry{
			rootfs.Bytes("kubernetes", "/usr/lib/hardtack/bin/kubernetes", 0o755, []byte("program")),
			{Component: "kubernetes", Path: "/usr/bin/kubelet", Mode: fs.ModeSymlink | 0o777, Link: "../lib/hardtack/bin/kubernetes"},
			rootfs.Bytes(rootfs.FromAgent, rootfs.AgentPath, 0o755, []byte("agent")),
			rootfs.Bytes(rootfs.FromReader, rootfs.ReaderPath, 0o755, []byte("reader")),
			rootfs.Bytes(rootfs.FromExtra, "/etc/"+strings.Repeat("long", 30)+"/"+strings.Repeat("name", 30)+" with ünïcode", 0o640, []byte("x")),
			{Component: rootfs.FromExtra, Path: "/etc/kubernetes/pki", Mode: fs.ModeDir | 0o700},
		},
		Units: fstest.MapFS{
			"kubelet.service":                {Data: []byte("[Service]\nExecStart=/usr/bin/kubelet\n[Install]\nWantedBy=multi-user.target other.target\nAlias=k.service\n")},
			"kubelet.service.d/10-more.conf": {Data: []byte("[Install]\nWantedBy=not-from-here.target\n")},
			"hardtack.slice":                 {Data: []byte("[Slice]\n")},
			"tty@.service":                   {Data: []byte("[Install]\nRequiredBy=getty.target\nDefaultInstance=one\n")},
		},
		Rootfs: fstest.MapFS{
			"etc/kubernetes/config":       {Data: []byte("A=1\n")},
			"usr/lib/hardtack/require.sh": {Data: []byte("#!/bin/sh\n")},
			"var/lib/empty/.keep":         {},
		},
		KernelArguments: []string{"console=ttyS0", "quiet"},
		Sysctls:         map[string]string{"net.ipv4.ip_forward": "1", "kernel.panic": "10"},
	}
}

func compose(tb testing.TB, in rootfs.Inputs) *rootfs.Tree {
	tb.Helper()
	tree, err := rootfs.Compose(in)
	if err != nil {
		tb.Fatal(err)
	}
	return tree
}

func TestListing(t *testing.T) {
	tree := compose(t, inputs())
	got := tree.Listing() + "digest " + tree.Digest() + "\n"
	golden.Assert(t, got, "listing.txt")
}

func TestOrderOfInputsDoesNotShow(t *testing.T) {
	want := compose(t, inputs())
	var stream bytes.Buffer
	if err := want.WriteTar(t.Context(), &stream); err != nil {
		t.Fatal(err)
	}
	for seed := range uint64(50) {
		in := inputs()
		rand.New(rand.NewPCG(seed, 1)).Shuffle(len(in.Files), func(i, j int) { in.Files[i], in.Files[j] = in.Files[j], in.Files[i] })
		tree := compose(t, in)
		var again bytes.Buffer
		if err := tree.WriteTar(t.Context(), &again); err != nil {
			t.Fatal(err)
		}
		if tree.Digest() != want.Digest() || tree.Listing() != want.Listing() || !bytes.Equal(stream.Bytes(), again.Bytes()) {
			t.Fatalf("seed %d: another order of the inputs made another tree", seed)
		}
	}
}

func TestDigestCoversEverything(t *testing.T) {
	seen := map[string]string{compose(t, rootfs.Inputs{}).Digest(): "nothing"}
	for name, e := range map[string]rootfs.Entry{
		"a file":          rootfs.Bytes("c", "/opt/a", 0o644, []byte("x")),
		"another path":    rootfs.Bytes("c", "/opt/b", 0o644, []byte("x")),
		"another mode":    rootfs.Bytes("c", "/opt/a", 0o755, []byte("x")),
		"another content": rootfs.Bytes("c", "/opt/a", 0o644, []byte("y")),
		"a link":          {Component: "c", Path: "/opt/a", Mode: fs.ModeSymlink | 0o777, Link: "x"},
		"another link":    {Component: "c", Path: "/opt/a", Mode: fs.ModeSymlink | 0o777, Link: "y"},
		"a directory":     {Component: "c", Path: "/opt/a", Mode: fs.ModeDir | 0o755},
	} {
		digest := compose(t, rootfs.Inputs{Files: []rootfs.Entry{e}}).Digest()
		if other, taken := seen[digest]; taken {
			t.Errorf("%s and %s have the same digest", name, other)
		}
		seen[digest] = name
	}
}

func TestComposeRefuses(t *testing.T) {
	file := func(component, path string) rootfs.Entry { return rootfs.Bytes(component, path, 0o644, []byte("x")) }
	for name, test := range map[string]struct {
		in   rootfs.Inputs
		want []string
	}{
		"two sources for one path": {
			rootfs.Inputs{Files: []rootfs.Entry{file("etcd", "/usr/bin/x"), file("runc", "/usr/bin/x")}},
			[]string{"/usr/bin/x: both etcd and runc put it there"}},
		"an extra file over a unit": {
			rootfs.Inputs{Files: []rootfs.Entry{file("extra", "/usr/lib/systemd/system/a.service")}, Units: fstest.MapFS{"a.service": {}}},
			[]string{"both extra and units put it there"}},
		"a file where a directory is needed": {
			rootfs.Inputs{Files: []rootfs.Entry{file("etcd", "/opt/x"), file("runc", "/opt/x/y")}},
			[]string{"runc puts it below /opt/x, which from etcd is no directory"}},
		"two modes for a directory": {
			rootfs.Inputs{Files: []rootfs.Entry{{Component: "a", Path: "/opt", Mode: fs.ModeDir | 0o700}, {Component: "b", Path: "/opt", Mode: fs.ModeDir | 0o755}}},
			[]string{"/opt: both a and b"}},
		"a path beside /usr":          {rootfs.Inputs{Files: []rootfs.Entry{file("a", "/bin/x")}}, []string{"/bin is a link into /usr", "write it as /usr/bin/x"}},
		"a relative path":             {rootfs.Inputs{Files: []rootfs.Entry{file("a", "opt/x")}}, []string{"not absolute"}},
		"a path with ..":              {rootfs.Inputs{Files: []rootfs.Entry{file("a", "/opt/../x")}}, []string{"not absolute and clean"}},
		"a line break in a path":      {rootfs.Inputs{Files: []rootfs.Entry{file("a", "/opt/a\nb")}}, []string{"control character"}},
		"a role file":                 {rootfs.Inputs{Files: []rootfs.Entry{file("a", "/etc/sysconfig/kubernetes-masters")}}, []string{"no role file"}},
		"a link to nowhere":           {rootfs.Inputs{Files: []rootfs.Entry{{Component: "a", Path: "/opt/x", Mode: fs.ModeSymlink | 0o777}}}, []string{"needs a target"}},
		"a device":                    {rootfs.Inputs{Files: []rootfs.Entry{{Component: "a", Path: "/opt/x", Mode: fs.ModeDevice}}}, []string{"neither file, directory nor symbolic link"}},
		"a kernel argument":           {rootfs.Inputs{KernelArguments: []string{"a\"b"}}, []string{"hold a quote"}},
		"a sysctl":                    {rootfs.Inputs{Sysctls: map[string]string{"a b": "1"}}, []string{`the sysctl "a b"`}},
		"everything at the same time": {rootfs.Inputs{Files: []rootfs.Entry{file("a", "x"), file("a", "y")}}, []string{"x:", "y:"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := rootfs.Compose(test.in)
			if err == nil {
				t.Fatal("it was not refused")
			}
			for _, want := range test.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("the error lacks %q:\n%v", want, err)
				}
			}
		})
	}
}

// The real tar and the real sha256sum are what reads the tree on a target.
func TestRealTarAndSha256sumReadIt(t *testing.T) {
	tree := compose(t, inputs())
	dir := t.TempDir()
	var stream bytes.Buffer
	if err := tree.WriteTar(t.Context(), &stream); err != nil {
		t.Fatal(err)
	}
	command(t, &stream, "tar", "--extract", "--file=-", "--no-same-owner", "--directory", dir)
	for e := range tree.All() {
		info, err := os.Lstat(filepath.Join(dir, e.Path))
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode() != e.Mode {
			t.Errorf("%s has mode %v instead of %v", e.Path, info.Mode(), e.Mode)
		}
		if e.Mode.IsRegular() && info.ModTime().Unix() != 0 {
			t.Errorf("%s has a time: %v", e.Path, info.ModTime())
		}
	}
	sums := strings.ReplaceAll(tree.Sums(), "  /", "  "+dir+"/")
	command(t, strings.NewReader(sums), "sha256sum", "--check", "--strict", "--quiet")
}

func command(t *testing.T, stdin io.Reader, name string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Stdin = stdin
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", name, err, out)
	}
}

func TestOwnersInTheStream(t *testing.T) {
	var stream bytes.Buffer
	if err := compose(t, inputs()).WriteTar(t.Context(), &stream); err != nil {
		t.Fatal(err)
	}
	n := 0
	for r := tar.NewReader(&stream); ; n++ {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if h.Uid != 0 || h.Gid != 0 || strings.HasPrefix(h.Name, "/") {
			t.Errorf("%s belongs to %d:%d", h.Name, h.Uid, h.Gid)
		}
	}
	if want := compose(t, inputs()).Len(); n != want {
		t.Errorf("the stream has %d members instead of %d", n, want)
	}
}

func TestWriteTarFindsAChangedFile(t *testing.T) {
	for name, after := range map[string]string{"as long": "12345", "shorter": "1", "longer": "12345678"} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "program")
			if err := os.WriteFile(file, []byte("abcde"), 0o644); err != nil {
				t.Fatal(err)
			}
			e, err := rootfs.Local("a", "/opt/program", 0o755, file)
			if err != nil {
				t.Fatal(err)
			}
			tree := compose(t, rootfs.Inputs{Files: []rootfs.Entry{e}})
			if err := os.WriteFile(file, []byte(after), 0o644); err != nil {
				t.Fatal(err)
			}
			if err := tree.WriteTar(t.Context(), io.Discard); err == nil || !strings.Contains(err.Error(), "/opt/program") {
				t.Errorf("a file that changed is %v", err)
			}
		})
	}
}

func TestWriteTarEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := compose(t, inputs()).WriteTar(ctx, io.Discard); !errors.Is(err, context.Canceled) {
		t.Errorf("a cancelled stream is %v", err)
	}
}

func TestSelect(t *testing.T) {
	tree := compose(t, inputs())
	units := tree.Select(func(e rootfs.Entry) bool { return e.Component == rootfs.FromUnits })
	if !units.Has("/etc/systemd/system/multi-user.target.wants/kubelet.service") || units.Has(rootfs.AgentPath) || !tree.Has(rootfs.AgentPath) {
		t.Errorf("selected:\n%s", units.Listing())
	}
}

func BenchmarkWriteTar(b *testing.B) {
	var files []rootfs.Entry
	content := bytes.Repeat([]byte("0123456789abcdef"), 1<<20)
	for i := range 4 {
		files = append(files, rootfs.Bytes("c", fmt.Sprintf("/usr/bin/program%d", i), 0o755, content))
	}
	for i := range 200 {
		files = append(files, rootfs.Bytes("c", fmt.Sprintf("/etc/small%d", i), 0o644, []byte("small")))
	}
	tree := compose(b, rootfs.Inputs{Files: files})
	b.SetBytes(tree.Size())
	b.ReportAllocs()
	for b.Loop() {
		if err := tree.WriteTar(b.Context(), io.Discard); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkCompose(b *testing.B) {
	for b.Loop() {
		compose(b, inputs())
	}
}
