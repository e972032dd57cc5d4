package awstest

import (
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/hardtack/packer-plugin-hardtack/images"
	"github.com/hardtack/packer-plugin-hardtack/pkg/image/bake"
	"github.com/hardtack/packer-plugin-hardtack/pkg/image/bake/baketest"
	"github.com/hardtack/packer-plugin-hardtack/units"
)

// top is the checkout, seen from this package's directory; template is below it.
const (
	top      = "../../.."
	template = "images/aws.pkr.hcl"
)

// tools are the programs of the proof: each is the real one.
type tools struct {
	packer, agent, reader, plugins, work string
}

// buildTools builds Packer and the amazon plugin where they are not in the cache yet, and our plugin
// and programs as they are now.
func buildTools(t *testing.T) tools {
	t.Helper()
	x := tools{packer: os.Getenv("HARDTACK_PACKER"), plugins: t.TempDir(), work: t.TempDir()}
	if x.packer == "" {
		x.packer = tool(t, "packer")
	}
	x.agent, x.reader = filepath.Join(x.work, "hardtack-agent"), filepath.Join(x.work, "hardtack-userdata")
	plugin := filepath.Join(x.work, "packer-plugin-hardtack")
	for out, pkg := range map[string]string{x.agent: "./cmd/hardtack-agent", x.reader: "./cmd/hardtack-userdata", plugin: "./cmd/packer-plugin-hardtack"} {
		build := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-buildvcs=false", "-o", out,
			"-ldflags", "-s -w", pkg)
		build.Dir = top
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		if msg, err := build.CombinedOutput(); err != nil {
			t.Fatalf("building %s: %v\n%s", pkg, err, msg)
		}
	}
	for name, path := range map[string]string{"github.com/hashicorp/amazon": tool(t, "packer-plugin-amazon"), "github.com/hardtack/hardtack": plugin} {
		install := exec.CommandContext(t.Context(), x.packer, "plugins", "install", "--path", path, name)
		install.Env = x.env()
		if msg, err := install.CombinedOutput(); err != nil {
			t.Fatalf("installing the plugin %s: %v\n%s", name, err, msg)
		}
	}
	return x
}

func tool(t *testing.T, name string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "scripts/tool", name)
	cmd.Dir, cmd.Stderr = top, os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("scripts/tool %s: %v", name, err)
	}
	return strings.TrimSpace(string(out))
}

// env keeps Packer, the plugins and the AWS SDK away from the user's own files and from AWS.
func (x tools) env() []string {
	return append(os.Environ(), "PACKER_PLUGIN_PATH="+x.plugins, "PACKER_CONFIG_DIR="+x.work, "PACKER_CACHE_DIR="+x.work,
		"CHECKPOINT_DISABLE=1", "AWS_CONFIG_FILE=/dev/null", "AWS_SHARED_CREDENTIALS_FILE=/dev/null",
		"AWS_ACCESS_KEY_ID=test", "AWS_SECRET_ACCESS_KEY=test", "AWS_EC2_METADATA_DISABLED=true", "AWS_PROFILE=")
}

// build is `packer build` of the template, with the variables of this test's environment.
func (x tools) build(t *testing.T, lock, mirror, output string, c *cloud, m *machine) *exec.Cmd {
	t.Helper()
	args := []string{"build", "-color=false"}
	for _, v := range []string{
		"lock=" + lock, "source=release", "mirror=" + mirror, "agent_path=" + x.agent, "reader_path=" + x.reader, "output=" + output,
		"region=" + region, "ssh_host=127.0.0.1", "ssh_port=" + strconv.Itoa(m.port), `source_cidrs=["127.0.0.1/32"]`,
	} {
		args = append(args, "-var", v)
	}
	cmd := exec.CommandContext(t.Context(), x.packer, append(args, template)...)
	cmd.Dir = top
	// An empty cache, so that each build fetches everything from the mirror.
	cmd.Env = append(x.env(), "AWS_ENDPOINT_URL="+c.url, "XDG_CACHE_HOME="+t.TempDir())
	return cmd
}

// fixture is the default lock with each release file made small.
type fixture struct {
	lock, mirror, fingerprint, kubernetes string
}

func makeFixture(t *testing.T) fixture {
	t.Helper()
	full, err := bake.LoadLock(images.FS, bake.DefaultLock)
	if err != nil {
		t.Fatal(err)
	}
	f := fixture{kubernetes: full.Kubernetes()}
	f.lock, f.mirror = baketest.SmallRelease(t, full)
	f.fingerprint = fingerprint(t, f.lock)
	return f
}

func fingerprint(t *testing.T, file string) string {
	t.Helper()
	lock, err := bake.LoadLock(images.FS, file)
	if err != nil {
		t.Fatal(err)
	}
	packages, err := bake.Packages(images.FS)
	if err != nil {
		t.Fatal(err)
	}
	plain, err := fs.Sub(images.FS, "rootfs")
	if err != nil {
		t.Fatal(err)
	}
	sum, err := bake.Fingerprint(lock.Fingerprint(), packages, units.FS, plain)
	if err != nil {
		t.Fatal(err)
	}
	return sum
}

// stuckMirror serves a mirror's directory, and never finishes with one file.
type stuckMirror struct {
	url   string
	asked chan struct{}
}

func newStuckMirror(t *testing.T, dir string) *stuckMirror {
	t.Helper()
	m := &stuckMirror{asked: make(chan struct{})}
	files := http.FileServer(http.Dir(dir))
	var once sync.Once
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasSuffix(r.URL.Path, "/kubelet") {
			files.ServeHTTP(w, r)
			return
		}
		once.Do(func() { close(m.asked) })
		<-r.Context().Done()
	}))
	t.Cleanup(server.Close)
	m.url = server.URL
	return m
}

func writeFile(t *testing.T, name, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}
