package systemd_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/images"
	"github.com/hardtack/packer-plugin-hardtack/images/imagestest/programs"
	"github.com/hardtack/packer-plugin-hardtack/pkg/image/bake/baketest"
	"github.com/hardtack/packer-plugin-hardtack/pkg/image/rootfs"
	"github.com/hardtack/packer-plugin-hardtack/pkg/image/unit"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/machine/machinetest"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/reason"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/timeline"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki/authority"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki/store"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
	"github.com/hardtack/packer-plugin-hardtack/units"
)

// debian is the base of this package's test containers.
var debian baketest.Base

func TestMain(m *testing.M) {
	code := m.Run()
	if err := debian.Close(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// container is a machine with the image's files, units and agent, that the real systemd boots.
type container struct {
	root, report string
}

// newContainer makes one with roles; the daemons that are not among real do nothing.
func newContainer(t *testing.T, roles role.Set, env string, real ...string) container {
	t.Helper()
	if os.Getenv("HARDTACK_E2E") == "" {
		t.Skip("boots a container: set HARDTACK_E2E=1")
	}
	if _, err := exec.LookPath("systemd-nspawn"); err != nil {
		t.Skip("systemd-nspawn is not installed (Debian's package systemd-container)")
	}
	c := container{debian.Root(t, "../../../images", 512), t.TempDir()}
	files, err := fs.Sub(images.FS, "rootfs")
	if err != nil {
		t.Fatal(err)
	}
	c.copy(t, files, "/")
	c.copy(t, units.FS, "/usr/lib/systemd/system")
	us, problems := unit.Load(units.FS)
	if err := problems.Err(); err != nil {
		t.Fatal(err)
	}
	for _, u := range us {
		if u.Value("Install", "WantedBy").Value == "multi-user.target" {
			c.enable(t, u.Name)
		}
		if _, ok := u.Role(); ok {
			for _, o := range u.Values("Unit", "AssertFileIsExecutable") {
				c.write(t, o.Value, "#!/bin/sh\nexec sleep infinity\n")
			}
		}
	}
	c.enable(t, "systemd-networkd.service")
	c.enable(t, "systemd-resolved.service")
	lock := programs.DefaultLock(t)
	programs.NeedBuilt(t, lock, real...)
	programs.Install(t, c.root, lock, real...)
	// A machine's network, without anybody in it.
	c.write(t, "/usr/lib/systemd/system/lan.service", "[Unit]\nDefaultDependencies=no\nAfter=local-fs.target\nBefore=network.target\n[Service]\nType=oneshot\n"+
		"ExecStart=/usr/bin/ip link add lan0 mtu 9001 type veth peer name lan1 mtu 9001\nExecStart=/usr/bin/ip address add 10.1.0.12/24 dev lan0\n"+
		"ExecStart=/usr/bin/ip link set lan0 up\nExecStart=/usr/bin/ip link set lan1 up\nExecStart=/usr/bin/ip route add default via 10.1.0.1\n")
	c.enable(t, "lan.service")
	c.programs(t)
	c.userData(t, roles, env)
	return c
}

// write makes a file, which anybody may read and run.
func (c container) write(t *testing.T, name, text string) {
	t.Helper()
	file := filepath.Join(c.root, name)
	err := os.MkdirAll(filepath.Dir(file), 0o755)
	if err := errors.Join(err, os.WriteFile(file, []byte(text), 0o755), os.Chmod(file, 0o755)); err != nil {
		t.Fatal(err)
	}
}

func (c container) copy(t *testing.T, from fs.FS, to string) {
	t.Helper()
	err := fs.WalkDir(from, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := fs.ReadFile(from, name)
		if err == nil && !strings.HasSuffix(name, ".go") {
			c.write(t, path.Join(to, name), string(text))
			err = os.Chmod(filepath.Join(c.root, to, name), rootfs.FileMode(text))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func (c container) enable(t *testing.T, name string) {
	t.Helper()
	dir := filepath.Join(c.root, "etc/systemd/system/multi-user.target.wants")
	err := os.MkdirAll(dir, 0o755)
	if err := errors.Join(err, os.Symlink("/usr/lib/systemd/system/"+name, filepath.Join(dir, name))); err != nil {
		t.Fatal(err)
	}
}

// programs builds our own programs as the image has them.
func (c container) programs(t *testing.T) {
	t.Helper()
	for _, name := range []string{"hardtack-agent", "hardtack-userdata"} {
		out := filepath.Join(c.root, "usr/lib/hardtack/bin", name)
		_ = os.Remove(out) // the file that stands in for it
		cmd := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-ldflags=-s -w", "-o", out, "../../../cmd/"+name)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if text, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("building %s: %v\n%s", name, err, text)
		}
	}
}

// userData makes the cluster's store and the machine's user data.
func (c container) userData(t *testing.T, roles role.Set, env string) {
	t.Helper()
	const place = "/srv/store"
	s := store.NewDir(filepath.Join(c.root, place))
	if _, err := authority.Create(t.Context(), s, machinetest.Info("demo"), time.Now()); err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for _, r := range roles {
		files[r.File()] = "CLUSTER_NAME=demo\nSTORE=dir:" + place + "\n" + env
	}
	list := []map[string]string{}
	for name, content := range files {
		list = append(list, map[string]string{"path": name, "content": content})
	}
	data, err := json.Marshal(map[string]any{"write_files": list})
	if err != nil {
		t.Fatal(err)
	}
	c.write(t, "/etc/hardtack/user-data", "#cloud-config\n"+string(data))
}

// boot boots the container until the script has run in it, and returns the console; each line of the
// script's output is in the file out of the report.
func (c container) boot(t *testing.T, script string) (console []string, out string) {
	t.Helper()
	c.write(t, "/usr/lib/systemd/system/report.service", "[Service]\nType=oneshot\nExecStart=-/bin/sh -eu /usr/lib/report\nExecStartPost=/usr/bin/systemctl --no-block poweroff\n"+
		"StandardOutput=file:/report/out\nStandardError=file:/report/trace\nTimeoutStartSec=infinity\n[Install]\nWantedBy=multi-user.target\n")
	c.write(t, "/usr/lib/report", script)
	c.enable(t, "report.service")
	// The host may have the old control groups, and the container must not. Without bpf systemd drops IPAddressDeny= with a
	// line in its journal.
	const nspawn = `if [ "$(stat -f -c %T /sys/fs/cgroup)" != cgroup2fs ]; then
	umount -R /sys/fs/cgroup
	mount -t cgroup2 cgroup2 /sys/fs/cgroup
fi
exec systemd-nspawn --quiet --boot --register=no --keep-unit --private-network --capability=CAP_BPF --system-call-filter=bpf --directory "$1" --bind "$2:/report" --machine "hardtack-test-$$"`
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute) // for a container that hangs
	defer cancel()
	cmd := exec.CommandContext(ctx, "unshare", "--mount", "sh", "-c", nspawn, "sh", c.root, c.report)
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) } // it switches the container off
	cmd.WaitDelay = 30 * time.Second
	err := cmd.Run()
	data, reading := os.ReadFile(filepath.Join(c.report, "out"))
	t.Cleanup(func() {
		if t.Failed() {
			trace, _ := os.ReadFile(filepath.Join(c.report, "trace"))
			t.Logf("the console:\n%s\nthe script:\n%s\n%s", log.String(), trace, data)
		}
	})
	if err := errors.Join(err, reading); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(&log)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		console = append(console, lines.Text())
	}
	return console, string(data)
}

// TestEtcdMachine boots a machine with the role etcd and the real etcd: it gets ready, and says where its boot's time went.
func TestEtcdMachine(t *testing.T) {
	c := newContainer(t, role.Set{role.Etcd}, "", "etcd")
	console, out := c.boot(t, `
until [ -e /run/hardtack/marks.json ] && systemctl is-active --quiet hardtack-ready.service; do sleep 0.2; done
systemctl show --property=StatusText,ActiveState hardtack-ready.service
/usr/lib/hardtack/bin/hardtack-agent timeline --json >/report/timeline.json
`)
	for _, want := range []string{"StatusText=ready: etcd\n", "ActiveState=active\n"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is not in\n%s", want, out)
		}
	}
	var seen []timeline.Timeline
	for _, line := range console {
		if f, ok := reason.Parse(line); ok {
			t.Errorf("a failure: %+v", f)
		}
		if tl, ok := timeline.Parse(line); ok {
			seen = append(seen, tl)
		}
	}
	if len(seen) != 1 {
		t.Fatalf("%d timelines on the console", len(seen))
	}
	tl := seen[0]
	span := func(name string) timeline.Span {
		i := slices.IndexFunc(tl.Units, func(s timeline.Span) bool { return s.Unit == name })
		if i < 0 {
			t.Fatalf("no %s in %+v", name, tl.Units)
		}
		return tl.Units[i]
	}
	userdata, certs, etcd := span("hardtack-userdata.service"), span("hardtack-certs-etcd.service"), span("etcd.service")
	if tl.Roles != "etcd" || tl.Userspace == 0 || userdata.Begin < tl.Userspace || certs.Active < userdata.Active || etcd.Active < certs.Active || tl.Ready < etcd.Active {
		t.Errorf("not in order: %+v", tl)
	}
	if tl.Agent.Work <= 0 || tl.Agent.Work > tl.Ready-tl.Userspace || tl.Agent.CPU <= 0 || len(tl.Marks) != 2 || tl.Marks[0].Name != "etcd" || tl.Marks[1].Name != "ready" {
		t.Errorf("%+v, %+v", tl.Agent, tl.Marks)
	}
	text, err := os.ReadFile(filepath.Join(c.report, "timeline.json"))
	if err != nil {
		t.Fatal(err)
	}
	var later timeline.Timeline
	if err := json.Unmarshal(text, &later); err != nil || later.Ready != tl.Ready || later.Boot != tl.Boot {
		t.Errorf("later: %s, %v", text, err)
	}
}

// TestMinionAlone boots a machine with the role minions where there is no master: it is named, waits, and says for what: for
// the masters' name, then for a master that answers; the token is the last thing that it needs.
func TestMinionAlone(t *testing.T) {
	c := newContainer(t, role.Set{role.Minions}, "KUBELET_HOSTNAME=--hostname-override=Node-A.example\n")
	c.write(t, "/etc/systemd/system/hardtack-ready.service.d/test.conf", "[Service]\nExecStart=\nExecStart=/usr/lib/hardtack/bin/hardtack-agent ready --stall=1s\n")
	// The daemons before the kubelet are stand-ins, which do not notify and have no images.
	c.write(t, "/etc/systemd/system/containerd.service.d/test.conf", "[Service]\nType=exec\n")
	c.write(t, "/etc/systemd/system/hardtack-images.service.d/test.conf", "[Unit]\nConditionPathExistsGlob=\n[Service]\nExecStart=\nExecStart=/bin/true\n")
	_, out := c.boot(t, `
failed() { until journalctl --unit=hardtack-ready.service --output=cat | grep --quiet '^{"hardtack":"failed",.*"reason":"'$1; do sleep 0.2; done; }
failed dns
uname -n
cat /etc/hostname /run/hardtack/node.env
grep mtu /run/hardtack/cni-template.conflist
grep Pods /etc/kubernetes/kubelet.conf.d/50-machine.conf
echo 127.0.0.1 masters.demo.k8s >>/etc/hosts
failed unreachable
systemctl show --property=StatusText,SubState hardtack-bootstrap.service
journalctl --unit=hardtack-ready.service --output=cat | grep '^{"hardtack"'
`)
	for _, want := range []string{
		"node-a.example\nnode-a.example\n", "NODE_NAME=node-a.example\n", "NODE_ADDRESS=--node-ip=10.1.0.12\n", `"mtu": 8951,`, "maxPods: 110\n",
		"StatusText=[unreachable] https://masters.demo.k8s:443/readyz: ", "SubState=start\n",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is not in\n%s", want, out)
		}
	}
	var failures []string
	for line := range strings.Lines(out) {
		if f, ok := reason.Parse(line); ok {
			failures = append(failures, f.Unit+" "+string(f.Reason))
		}
	}
	if want := []string{"hardtack-bootstrap.service dns", "hardtack-bootstrap.service unreachable"}; !slices.Equal(failures, want) {
		t.Errorf("failures %q, want %q", failures, want)
	}
}
