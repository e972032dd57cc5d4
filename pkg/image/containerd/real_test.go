package containerd_test

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/hardtack/packer-plugin-hardtack/images/imagestest/programs"
	"github.com/hardtack/packer-plugin-hardtack/pkg/image/containerd"
	"github.com/hardtack/packer-plugin-hardtack/pkg/image/rootfs"
)

// The lock's own containerd, in a root directory with nothing but the unpacked images, knows them, runs a program of one, and its garbage collector
// leaves them alone. The script that gives them to it does it once, begins anew when they are of another bake, and does what was cut off again.
func TestContainerd(t *testing.T) {
	if os.Getenv("HARDTACK_E2E") == "" {
		t.Skip("needs the built components: set HARDTACK_E2E=1")
	}
	if os.Geteuid() != 0 {
		t.Skip("mounts and containers need root, and this is user ", os.Geteuid())
	}
	root, lock := t.TempDir(), programs.DefaultLock(t)
	programs.NeedBuilt(t, lock, "containerd", "runc")
	programs.Install(t, root, lock, "containerd", "runc")
	entries := unpack(t, greeting(t)).Entries
	for _, name := range []string{"etc/containerd/config.toml", "usr/lib/hardtack/images.sh"} {
		text, err := os.ReadFile("../../../images/rootfs/" + name)
		if err != nil {
			t.Fatal(err)
		}
		entries = append(entries, rootfs.Bytes(rootfs.FromRootfs, "/"+name, 0o755, text))
	}
	write(t, root, entries)

	script := func() {
		t.Helper()
		m := chroot(t, root, "/usr/lib/hardtack/images.sh")
		if out, err := m.CombinedOutput(); err != nil || len(out) > 0 {
			t.Fatalf("images.sh: %v: %s", err, out)
		}
	}
	mark, kept := filepath.Join(root, "var/lib/containerd", containerd.Mark), filepath.Join(root, "var/lib/containerd/io.containerd.kept")
	script()
	if err := os.WriteFile(kept, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if script(); !exists(kept) {
		t.Error("with the same images it begins anew")
	}
	for what, change := range map[string]func() error{
		"of another bake": func() error { return os.WriteFile(mark, []byte("another\n"), 0o600) },
		"cut off":         func() error { return os.Remove(mark) },
	} {
		if err := change(); err != nil {
			t.Fatal(err)
		}
		if script(); exists(kept) || !exists(mark) {
			t.Errorf("%s: does not begin anew", what)
		}
		if err := os.WriteFile(kept, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}

	ctr := daemon(t, root)
	const image = "registry.example/shop/greeting:1"
	if out := ctr("images", "list"); !strings.Contains(out, image) || !strings.Contains(out, "io.cri-containerd.image=managed") || !strings.Contains(out, "pinned=pinned") {
		t.Errorf("the Kubernetes interface has not taken the image over:\n%s", out)
	}
	for _, id := range []string{"first", "after-collection"} {
		if out := ctr("run", "--rm", "--net-host", image, id); out != "from the image\n" {
			t.Errorf("%s: it printed %q", id, out)
		}
		ctr("images", "tag", image, "registry.example/shop/other:1")
		ctr("images", "remove", "--sync", "registry.example/shop/other:1") // collects garbage before it returns
	}
}

func exists(name string) bool {
	_, err := os.Lstat(name)
	return err == nil
}

// greeting is an image with a program that prints a file of the image.
func greeting(t *testing.T) rootfs.Entry {
	t.Helper()
	dir := t.TempDir()
	const source = "package main\n\nimport \"os\"\n\nfunc main() { text, _ := os.ReadFile(\"/etc/greeting\"); os.Stdout.Write(text) }\n"
	if err := os.WriteFile(filepath.Join(dir, "main.go"), []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "go", "build", "-o", "greeting", "main.go")
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	content, err := os.ReadFile(filepath.Join(dir, "greeting"))
	if err != nil {
		t.Fatal(err)
	}
	return archiveOf(t, "greeting", func(c *v1.ConfigFile) { c.Config.Entrypoint = []string{"/greeting"} }, layer(t, file{name: "etc/"}, file{name: "etc/greeting", content: "from a lower layer\n"}),
		layer(t, file{name: "greeting", content: string(content)}, file{name: "etc/"}, file{name: "etc/greeting", content: "from the image\n"}))
}

// write puts a tree into a directory, with owners and modes as a bake does.
func write(t *testing.T, root string, entries []rootfs.Entry) {
	t.Helper()
	tree, err := rootfs.Compose(rootfs.Inputs{Files: entries})
	if err != nil {
		t.Fatal(err)
	}
	var text bytes.Buffer
	if err := tree.WriteTar(t.Context(), &text); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "tar", "--extract", "--directory="+root, "--same-owner", "--numeric-owner", "--same-permissions")
	cmd.Stdin = &text
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

// chroot runs a command in a root directory with this machine's programs below it, in a mount namespace of its own.
func chroot(t *testing.T, root string, command ...string) *exec.Cmd {
	t.Helper()
	const mounts = `set -e
root=$1; shift
mkdir -p "$root"/proc "$root"/sys "$root"/dev "$root"/tmp "$root"/run "$root"/bin "$root"/sbin "$root"/lib "$root"/lib64 "$root"/host
mount --bind "$root" "$root" # runc wants "/" to be a mount
for dir in proc sys dev; do mount --rbind /$dir "$root"/$dir; done
for dir in bin sbin lib lib64; do [ ! -d /$dir ] || mount --rbind /$dir "$root"/$dir; done
exec chroot "$root" "$@"`
	cmd := exec.CommandContext(t.Context(), "unshare", append([]string{"--mount", "--propagation", "private", "sh", "-c", mounts, "sh", root}, command...)...)
	cmd.Env = append(os.Environ(), "PATH=/usr/bin:/usr/sbin:/bin:/sbin")
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 10 * time.Second
	return cmd
}

// daemon starts containerd, and returns its client. It ends with the test.
func daemon(t *testing.T, root string) func(args ...string) string {
	t.Helper()
	state := filepath.Join("/tmp", "state")
	socket := filepath.Join(state, "containerd.sock")
	ctx, stop := context.WithCancel(context.Background())
	server := chroot(t, root, "/usr/bin/containerd", "--config", "/etc/containerd/config.toml", "--state", state, "--address", socket)
	log, err := os.Create(filepath.Join(root, "containerd.log"))
	if err != nil {
		t.Fatal(err)
	}
	server.Stdout, server.Stderr = log, log
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	said := func() string {
		text, _ := os.ReadFile(log.Name()) // a reader of messages
		return string(text)
	}
	ended := make(chan struct{})
	var end error
	go func() {
		end = server.Wait()
		close(ended)
	}()
	t.Cleanup(func() {
		stop()
		_ = server.Process.Signal(os.Interrupt)
		<-ended
		_ = log.Close() // only messages
		if t.Failed() {
			t.Logf("containerd:\n%s", said())
		}
	})
	client := func(args ...string) string {
		t.Helper()
		cmd := chroot(t, root, append([]string{"/usr/bin/ctr", "--address", socket, "--namespace=k8s.io"}, args...)...)
		var errs bytes.Buffer
		cmd.Stderr = &errs
		out, err := cmd.Output()
		if err != nil {
			t.Errorf("ctr %v: %v: %s", args, err, &errs)
		}
		return string(out)
	}
	for ctx.Err() == nil {
		select {
		case <-ended:
			t.Fatalf("containerd has ended: %v:\n%s", end, said())
		case <-time.After(200 * time.Millisecond):
		}
		if exists(filepath.Join(root, socket)) && strings.Contains(said(), "containerd successfully booted") {
			break
		}
	}
	return client
}
