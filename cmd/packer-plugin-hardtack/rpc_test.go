package main_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/packer-plugin-sdk/packer"
	"github.com/hashicorp/packer-plugin-sdk/plugin"
	"github.com/hashicorp/packer-plugin-sdk/rpc"

	"github.com/hardtack/packer-plugin-hardtack/images"
	"github.com/hardtack/packer-plugin-hardtack/pkg/disk/chroot"
	"github.com/hardtack/packer-plugin-hardtack/pkg/image/bake"
	"github.com/hardtack/packer-plugin-hardtack/pkg/image/bake/baketest"
)

var (
	base   baketest.Base
	binary string // the plugin
)

func TestMain(m *testing.M) { os.Exit(testMain(m)) }

func testMain(m *testing.M) int {
	dir, err := os.MkdirTemp("", "packer-plugin-hardtack-")
	if err == nil {
		defer os.RemoveAll(dir)
		defer base.Close() //nolint:errcheck // nothing to do about it
		binary = filepath.Join(dir, "packer-plugin-hardtack")
		var out []byte
		if out, err = exec.Command("go", "build", "-o", binary, ".").CombinedOutput(); err != nil {
			err = fmt.Errorf("building the plugin: %w\n%s", err, out)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// start runs the plugin as Packer does, and connects to it.
func start(t *testing.T, kind, name string) (*rpc.Client, *exec.Cmd) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), binary, "start", kind, "--protobuf", name)
	cmd.Env = append(os.Environ(), plugin.MagicCookieKey+"="+plugin.MagicCookieValue,
		"PACKER_PLUGIN_MIN_PORT=10000", "PACKER_PLUGIN_MAX_PORT=25000")
	var log bytes.Buffer
	cmd.Stderr = &log
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("the plugin's log:\n%s", log.String())
		}
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("the plugin said %q: %v\n%s", line, err, log.String())
	}
	fields := strings.Split(strings.TrimSpace(line), "|") // version|api|network|address
	conn, err := (&net.Dialer{}).DialContext(t.Context(), fields[2], fields[3])
	if err != nil {
		t.Fatal(err)
	}
	client, err := rpc.NewClient(conn)
	if err != nil {
		t.Fatal(err)
	}
	client.UseProto = true
	return client, cmd
}

// comm is a builder's communicator over a root directory, on Packer's side of the RPC.
type comm struct {
	packer.MockCommunicator
	root    *chroot.Root
	onStart func(command string)
}

func (c *comm) Start(_ context.Context, cmd *packer.RemoteCmd) error {
	if c.onStart != nil {
		c.onStart(cmd.Command)
	}
	go func() {
		exit, err := c.root.Run(context.Background(), cmd.Command, cmd.Stdin, cmd.Stdout, cmd.Stderr)
		if err != nil {
			fmt.Fprintln(cmd.Stderr, err)
			exit = 255
		}
		cmd.SetExited(exit)
	}()
	return nil
}

func newComm(t *testing.T, room int) (*comm, string) {
	t.Helper()
	dir := base.Root(t, "../../images", room)
	root, err := chroot.New(dir, 0)
	if err != nil {
		t.Fatal(err)
	}
	return &comm{root: root}, dir
}

// mirror is a directory with small releases of every component and one program of that many bytes, and a lock of it that
// lies over theirs.
func mirror(t *testing.T, size int) (dir, lock string) {
	t.Helper()
	full, err := bake.LoadLock(images.FS, bake.DefaultLock)
	if err != nil {
		t.Fatal(err)
	}
	_, dir = baketest.SmallRelease(t, full)
	program := append([]byte("#!/bin/sh\n"), bytes.Repeat([]byte("# filling\n"), size/10)...)
	sum := sha256.Sum256(program)
	put(t, filepath.Join(dir, "example.com", "filler"), string(program))
	lock = filepath.Join(dir, "test.lock.yaml")
	put(t, lock, `schema: 1
name: test-1.0
over: [small.lock.yaml]
components:
  - name: filler
    version: v1.0.0
    licence: Apache-2.0
    homepage: https://example.com/
    files: [{name: filler, path: /usr/bin/filler, mode: "0755"}]
    release:
      amd64: &release
        - url: https://example.com/filler
          digest: sha256:`+hex.EncodeToString(sum[:])+`
          size: `+fmt.Sprint(len(program))+`
          published: https://example.com/sums
          as: filler
      arm64: *release
`)
	return dir, lock
}

func put(t *testing.T, file, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

// options of a template whose program has that many bytes.
func options(t *testing.T, size int) map[string]any {
	t.Helper()
	dir, lock := mirror(t, size)
	put(t, filepath.Join(dir, "units", "kubelet.service.d", "10-own.conf"), "[Service]\nNice=1\n")
	put(t, filepath.Join(dir, "agent"), "#!/bin/sh\n")
	put(t, filepath.Join(dir, "mine.service"), "[Unit]\nAfter=hardtack-userdata.service\nConditionPathExists=/etc/sysconfig/kubernetes-minions\n[Service]\nExecStart=/opt/mine\n[Install]\nWantedBy=multi-user.target\n")
	return map[string]any{
		"lock": lock, "source": "release", "mirror": dir, "cache_dir": filepath.Join(dir, "cache"),
		"agent_path": filepath.Join(dir, "agent"), "reader_path": filepath.Join(dir, "agent"), "units_dir": []string{filepath.Join(dir, "units")}, "output": filepath.Join(dir, "out"),
		"file":             []map[string]any{{"destination": "/opt/mine", "mode": "0755", "content": "#!/bin/sh\n"}, {"destination": "/opt/mine.conf", "content": "name: {{ .NodeName }}"}},
		"units":            []string{filepath.Join(dir, "mine.service")},
		"kernel_arguments": []string{"quiet"}, "sysctls": map[string]string{"kernel.panic": "10"},
	}
}

func prepared(t *testing.T, config map[string]any) (packer.Provisioner, *exec.Cmd) {
	t.Helper()
	client, cmd := start(t, "provisioner", plugin.DEFAULT_NAME)
	p := client.Provisioner()
	for range 2 { // as Packer does
		if err := p.Prepare(config); err != nil {
			t.Fatal(err)
		}
	}
	return p, cmd
}

func TestProvisionOverRPC(t *testing.T) {
	c, root := newComm(t, 100)
	config := options(t, 1<<20)
	p, _ := prepared(t, config)
	ui := &packer.MockUi{}
	if err := p.Provision(t.Context(), ui, c, nil); err != nil {
		t.Fatal(err)
	}
	out := config["output"].(string)
	client, _ := start(t, "datasource", "lock")
	d := client.Datasource()
	if err := d.Configure(map[string]any{"lock": config["lock"], "units_dir": config["units_dir"], "units": config["units"]}); err != nil {
		t.Fatal(err)
	}
	value, err := d.Execute()
	if err != nil {
		t.Fatal(err)
	}
	var manifest bake.Manifest
	if err := json.Unmarshal([]byte(read(t, filepath.Join(out, "image.json"))), &manifest); err != nil {
		t.Fatal(err)
	}
	if want := value.AsValueMap()["fingerprint"].AsString(); manifest.Lock.Image != want {
		t.Errorf("the fingerprint is %s in the image and %s in the data source", manifest.Lock.Image, want)
	}
	filler := manifest.Components[len(manifest.Components)-1]
	if filler.Name != "filler" || filler.Source.Kind != "release" || filler.Source.Origin != "https://example.com/filler" || filler.Size < 1<<20 {
		t.Errorf("the manifest's last component is %+v", filler)
	}
	if !slices.Contains(manifest.Tree.Units, "mine.service") || !strings.Contains(manifest.Roles.Text(), "mine") {
		t.Errorf("the unit of the template is not in the manifest: %v", manifest.Tree.Units)
	}
	if read(t, filepath.Join(root, "usr/lib/systemd/system/kubelet.service.d/10-own.conf")) != "[Service]\nNice=1\n" {
		t.Error("the drop-in is not in the image as it was given")
	}
	if text := read(t, filepath.Join(root, "opt/mine.conf")); text != "name: {{ .NodeName }}" {
		t.Errorf("the file's text is %q", text)
	}
	if read(t, filepath.Join(out, "image.json")) != read(t, filepath.Join(root, bake.ManifestPath)) ||
		read(t, filepath.Join(out, "sbom.cdx.json")) != read(t, filepath.Join(root, bake.SBOMPath)) {
		t.Error("what is brought back is not what is in the image")
	}
	if roles := read(t, filepath.Join(out, "roles.txt")); !strings.Contains(roles, "minions") || !strings.Contains(roles, "kubelet") {
		t.Errorf("the role table is\n%s", roles)
	}
	if link, err := os.Readlink(filepath.Join(root, "etc/systemd/system/multi-user.target.wants/mine.service")); err != nil {
		t.Errorf("the unit of the template is not enabled: %q, %v", link, err)
	}
	if err := p.Provision(t.Context(), ui, c, nil); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(ui.SayMessages[len(ui.SayMessages)-1].Message, "0 paths written (0.0 MB), 0 removed") {
		t.Errorf("the second bake ended with %q", ui.SayMessages[len(ui.SayMessages)-1].Message)
	}
}

func read(t *testing.T, file string) string {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// TestMemoryIsBounded bakes a program of 200 MiB. It measures the plugin's private memory: how much of its large
// program file is in memory is up to the kernel, and differs by 15 MB between runs.
func TestMemoryIsBounded(t *testing.T) {
	const size, bound = 200 << 20, 48 << 20
	c, _ := newComm(t, 300)
	p, cmd := prepared(t, options(t, size))
	ended := make(chan error, 1)
	go func() { ended <- p.Provision(t.Context(), &packer.MockUi{}, c, nil) }()
	peak := memory(t, cmd.Process.Pid, "RssAnon")
	for tick := time.Tick(2 * time.Millisecond); ; peak = max(peak, memory(t, cmd.Process.Pid, "RssAnon")) {
		select {
		case err := <-ended:
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("the plugin's own memory: at most %d MB for a tree of %d MB; with its program's %d MB", peak>>20, size>>20, memory(t, cmd.Process.Pid, "VmHWM")>>20)
			if peak > bound {
				t.Errorf("the plugin's own memory was %d MB, want at most %d", peak>>20, bound>>20)
			}
			return
		case <-tick:
		}
	}
}

// memory reads a line of a process's status, in bytes.
func memory(t *testing.T, pid int, name string) int64 {
	t.Helper()
	for line := range strings.Lines(read(t, fmt.Sprintf("/proc/%d/status", pid))) {
		if rest, ok := strings.CutPrefix(line, name+":"); ok {
			var kib int64
			if _, err := fmt.Sscan(rest, &kib); err != nil {
				t.Fatal(err)
			}
			return kib << 10
		}
	}
	t.Fatalf("the status of process %d has no %s", pid, name)
	return 0
}

// Ctrl-C in Packer: the stream ends, no command keeps running in the target, and a second bake repairs.
func TestCancelOverRPC(t *testing.T) {
	c, root := newComm(t, 200)
	config := options(t, 100<<20)
	p, cmd := prepared(t, config)
	ctx, cancel := context.WithCancel(t.Context())
	c.onStart = func(command string) {
		if strings.Contains(command, "tar --extract") {
			cancel()
		}
	}
	if err := p.Provision(ctx, &packer.MockUi{}, c, nil); err == nil || !strings.Contains(err.Error(), "cancel") {
		t.Errorf("a cancelled bake ended with %v", err)
	}
	if err := cmd.Process.Signal(syscall.Signal(0)); err != nil {
		t.Errorf("the plugin is gone: %v", err)
	}
	c.onStart = nil
	again, _ := prepared(t, config)
	if err := again.Provision(t.Context(), &packer.MockUi{}, c, nil); err != nil {
		t.Error(err)
	}
	if info, err := os.Stat(filepath.Join(root, "usr/bin/filler")); err != nil || info.Size() < 100<<20 {
		t.Errorf("the program after the second bake: %v, %v", info, err)
	}
}

func TestPrepareReportsEverything(t *testing.T) {
	client, _ := start(t, "provisioner", plugin.DEFAULT_NAME)
	err := client.Provisioner().Prepare(map[string]any{
		"lock": "nope", "source": "elsewhere", "units_dir": []string{"/etc/passwd"}, "agent_path": "/nowhere", "reader_path": "/nowhere/reader",
		"packages": []string{"A b"}, "kernel_arguments": []string{`a"b`}, "units": []string{"/nowhere.service"},
		"container_images": []string{"registry.example/web:1.2"}, "container_archives": []string{"/nowhere.tar"},
		"file": []map[string]any{{"destination": "etc/x", "mode": "999"}},
	})
	if err == nil {
		t.Fatal("nothing was reported")
	}
	for _, want := range []string{`lock "nope"`, `"elsewhere" is not one of`, "units_dir: /etc/passwd is not a directory", "agent_path: stat /nowhere:", "reader_path: stat /nowhere/reader:", "/nowhere.service",
		`"A b" is not the name`, "hold a quote", "either source or content", "is not an absolute path", "not octal",
		`"registry.example/web:1.2" has no digest`, "container_archives: open /nowhere.tar"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the report lacks %q:\n%v", want, err)
		}
	}
}

// TestPrepareTakesUnknownValues uses Packer's placeholder for values that are not known yet during `packer validate`.
func TestPrepareTakesUnknownValues(t *testing.T) {
	client, _ := start(t, "provisioner", plugin.DEFAULT_NAME)
	const unknown = "<unknown>"
	err := client.Provisioner().Prepare(map[string]any{
		"lock": unknown, "source": unknown, "mirror": unknown, "units_dir": []string{unknown}, "agent_path": unknown, "reader_path": unknown, "output": unknown,
		"packages": []string{unknown}, "kernel_arguments": []string{unknown}, "units": []string{unknown}, "container_images": []string{unknown}, "container_archives": []string{unknown},
		"file": []map[string]any{{"destination": unknown, "mode": unknown, "source": unknown}},
	})
	if err != nil {
		t.Error(err)
	}
}

func TestProvisionRefusesCommunicatorNone(t *testing.T) {
	p, _ := prepared(t, options(t, 10))
	err := p.Provision(t.Context(), &packer.MockUi{}, &packer.MockCommunicator{}, nil)
	if err == nil || !strings.Contains(err.Error(), "does not run commands") {
		t.Errorf("communicator none: %v", err)
	}
}

func TestDatasourceOverRPC(t *testing.T) {
	fingerprint := func(config map[string]any) string {
		client, _ := start(t, "datasource", "lock")
		d := client.Datasource()
		if err := d.Configure(config); err != nil {
			t.Fatal(err)
		}
		value, err := d.Execute()
		if err != nil {
			t.Fatal(err)
		}
		fields := value.AsValueMap()
		if name := fields["name"].AsString(); !strings.HasPrefix(name, "kubernetes-1.3") {
			t.Errorf("the lock's name is %q", name)
		}
		version := fields["kubernetes"].AsString()
		if fields["versions"].AsValueMap()["kubernetes"].AsString() != version || !strings.HasPrefix(version, "v1.3") {
			t.Errorf("Kubernetes is %q, and the versions %v", version, fields["versions"])
		}
		return fields["fingerprint"].AsString()
	}
	units := t.TempDir()
	put(t, filepath.Join(units, "etcd.service.d", "10-own.conf"), "[Service]\nNice=1\n")
	seen := map[string]bool{}
	for _, config := range []map[string]any{{}, {"lock": "kubernetes-1.35"}, {"units_dir": []string{units}}} {
		f := fingerprint(config)
		if len(f) != 12 || seen[f] || fingerprint(config) != f {
			t.Errorf("the fingerprint of %v is %q, after %v", config, f, seen)
		}
		seen[f] = true
	}
	client, _ := start(t, "datasource", "lock")
	d := client.Datasource()
	if err := errors.Join(d.Configure(map[string]any{"lock": "nope"})); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Execute(); err == nil || !strings.Contains(err.Error(), "kubernetes-1.36") {
		t.Errorf("a lock that is not there: %v", err)
	}
}
