package spec_test

import (
	"bytes"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/hardtack/packer-plugin-hardtack/images"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/config"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/userdata"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
	"github.com/hardtack/packer-plugin-hardtack/pkg/spec"
	"github.com/hardtack/packer-plugin-hardtack/units"
)

// The real programs of every minor version that is built take every command line and every configuration
// document of every example, as a machine has them: the image's files with the user data's over them.
func TestRealPrograms(t *testing.T) {
	for _, version := range spec.Versions() {
		t.Run(version, func(t *testing.T) {
			p := realPrograms(t, version)
			for name, text := range examples(t) {
				c := complete(t, strings.Replace(text, "version: 1.36\n", "", 1)+"\nversion: "+version+"\n")
				for i, g := range c.Groups {
					if i > 0 && slices.Equal(c.Groups[i-1].Members, g.Members) && c.Groups[i-1].Roles.String() == g.Roles.String() && g.Member != "" {
						continue // the next member of the same group
					}
					t.Run(name+"/"+g.Name, func(t *testing.T) { p.judge(t, newGuest(t, c, g)) })
				}
			}
		})
	}
}

// guest is a machine's file system, as far as the programs' settings go.
type guest struct {
	roles role.Set
	files map[string]string
}

func newGuest(t *testing.T, c *spec.Complete, g spec.Group) guest {
	t.Helper()
	data, err := c.UserData(g.Name, []byte(testCA))
	assert.NilError(t, err)
	result, _ := userdata.Parse(data, nil)
	m := guest{roles: result.Roles, files: map[string]string{}}
	for dir, fsys := range map[string]fs.FS{"": sub(t, images.FS, "rootfs"), "/usr/lib/systemd/system": units.FS} {
		err := fs.WalkDir(fsys, ".", func(name string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			text, err := fs.ReadFile(fsys, name)
			m.files[dir+"/"+name] = string(text)
			return err
		})
		assert.NilError(t, err)
	}
	for _, f := range result.Files {
		m.files[f.Path] = string(f.Content)
	}
	return m
}

func sub(t *testing.T, fsys fs.FS, dir string) fs.FS {
	t.Helper()
	out, err := fs.Sub(fsys, dir)
	assert.NilError(t, err)
	return out
}

// setting returns the values of a setting of a unit, with its drop-in; an empty one drops those before.
func (m guest) setting(unit, name string) []string {
	var values []string
	text := m.files["/usr/lib/systemd/system/"+unit] + m.files["/etc/systemd/system/"+unit+".d/50-hardtack-spec.conf"]
	for line := range strings.Lines(strings.ReplaceAll(text, "\\\n", " ")) {
		if value, ok := strings.CutPrefix(strings.TrimSpace(line), name+"="); ok && value == "" {
			values = nil
		} else if ok {
			values = append(values, value)
		}
	}
	return values
}

// environment is what the unit's files of variables say.
func (m guest) environment(unit string) map[string]string {
	env := map[string]string{}
	for _, file := range m.setting(unit, "EnvironmentFile") {
		for line := range strings.Lines(m.files[strings.TrimPrefix(file, "-")]) {
			name, value, ok := strings.Cut(strings.TrimSpace(line), "=")
			if !ok || strings.HasPrefix(name, "#") {
				continue
			}
			if unquoted, quoted := strings.CutPrefix(value, `"`); quoted {
				value = strings.NewReplacer(`\"`, `"`, `\\`, `\`, `\$`, `$`).Replace(strings.TrimSuffix(unquoted, `"`))
			}
			env[name] = value
		}
	}
	return env
}

// arguments are those that the unit starts its program with.
func (m guest) arguments(t *testing.T, unit, program string) []string {
	t.Helper()
	lines := m.setting(unit, "ExecStart")
	assert.Equal(t, len(lines), 1)
	_, line, ok := strings.Cut(lines[0], "/usr/bin/"+program)
	assert.Assert(t, ok, "%s does not start %s: %s", unit, program, lines[0])
	env := m.environment(unit)
	var args []string
	for word := range strings.FieldsSeq(strings.TrimRight(line, "' ")) {
		if name, ok := strings.CutPrefix(word, "$"); ok && !strings.HasPrefix(name, "{") && !strings.HasPrefix(name, "$") {
			args = append(args, strings.Fields(env[name])...)
			continue
		}
		args = append(args, os.Expand(word, func(name string) string { return env[name] }))
	}
	if unit == "etcd.service" {
		for name, value := range env {
			if flag, ok := strings.CutPrefix(name, "ETCD_"); ok && !slices.Contains(config.Variables(role.Etcd), name) {
				args = append(args, "--"+strings.ReplaceAll(strings.ToLower(flag), "_", "-")+"="+value)
			}
		}
	}
	return args
}

// judge asks the programs of the machine's roles.
func (p unpacked) judge(t *testing.T, m guest) {
	t.Helper()
	byRole := map[role.Role][]string{
		role.Masters: {"kubeAPIServer", "kubeControllerManager", "kubeScheduler"},
		role.Minions: {"kubeProxy", "kubelet", "flannel"}, role.Etcd: {"etcd"},
	}
	for _, r := range m.roles {
		for _, field := range byRole[r] {
			program := spec.Program(field)
			args := m.arguments(t, program+".service", program)
			p.flags(t, program, args)
			known := helpParsers[field](p.help(t, program))
			for _, a := range args {
				name, _, _ := strings.Cut(strings.TrimPrefix(a, "--"), "=")
				_, ok := known[name]
				assert.Assert(t, ok, "%s has no flag for %s", program, a)
			}
		}
		switch r {
		case role.Masters:
			p.scheduler(t, m.files["/etc/kubernetes/kube-scheduler.yaml"])
		case role.Minions:
			p.kubelet(t, m.files["/etc/kubernetes/kubelet.yaml"])
			p.proxy(t, m.files["/etc/kubernetes/kube-proxy.yaml"])
			p.containerd(t, m.files["/etc/containerd/config.toml"])
		}
	}
}

// asks runs a program and returns what it says.
func (p unpacked) asks(t *testing.T, program string, args ...string) (string, error) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), p.path(program), args...).CombinedOutput()
	return string(out), err
}

// flags has the program read its command line: it parses in order, and a last --help (of etcd --version)
// is reached only when all before it is understood.
func (p unpacked) flags(t *testing.T, program string, args []string) {
	t.Helper()
	last := "--help"
	if program == "etcd" {
		last = "--version"
	}
	out, err := p.asks(t, program, append(args, last)...)
	assert.NilError(t, err, "%s %q:\n%.2000s", program, args, out)
}

// write writes a document for a program to read.
func write(t *testing.T, name, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), name)
	assert.NilError(t, os.WriteFile(file, []byte(text), 0o600))
	return file
}

// lenient is what Kubernetes's programs say of a document with a field that they do not know, before they
// go on without it.
const lenient = "strict decoding"

// scheduler has the scheduler complete its document and end; it needs a kubeconfig, and asks nobody.
func (p unpacked) scheduler(t *testing.T, text string) {
	t.Helper()
	kubeconfig := write(t, "kubeconfig", `{apiVersion: v1, kind: Config, current-context: a, users: [{name: a, user: {}}],
clusters: [{name: a, cluster: {server: "https://127.0.0.1:1"}}], contexts: [{name: a, context: {cluster: a, user: a}}]}`)
	text = strings.ReplaceAll(text, "/run/hardtack/pki/kube-scheduler/kubeconfig", kubeconfig)
	ask := func(text string) (string, error) {
		return p.asks(t, "kube-scheduler", "--config="+write(t, "c.yaml", text), "--write-config-to="+filepath.Join(t.TempDir(), "out"))
	}
	out, err := ask(text)
	assert.NilError(t, err, "kube-scheduler:\n%s", out)
	assert.Assert(t, !strings.Contains(out, lenient), "kube-scheduler: %s", out)
	out, err = ask(text + "nosuchfield: 1\n")
	assert.Assert(t, err != nil && strings.Contains(out, "nosuchfield"), "kube-scheduler takes an unknown field: %s", out)
}

// proxy has kube-proxy complete its document and end.
func (p unpacked) proxy(t *testing.T, text string) {
	t.Helper()
	ask := func(text string) (string, error) {
		return p.asks(t, "kube-proxy", "--config="+write(t, "c.yaml", text), "--write-config-to="+filepath.Join(t.TempDir(), "out"))
	}
	out, err := ask(text)
	assert.NilError(t, err, "kube-proxy:\n%s", out)
	assert.Assert(t, !strings.Contains(out, lenient), "kube-proxy: %s", out)
	out, _ = ask(text + "nosuchfield: 1\n")
	assert.Assert(t, strings.Contains(out, lenient), "kube-proxy says nothing of an unknown field: %s", out)
}

// kubelet has the kubelet read and validate its document. It has no flag to end after that: what it needs
// next, and does not find here, is the clients' CA or the directory of its lock file, as the version goes.
func (p unpacked) kubelet(t *testing.T, text string) {
	t.Helper()
	dropIns := t.TempDir() // this machine may have the old cgroups
	assert.NilError(t, os.WriteFile(filepath.Join(dropIns, "c.conf"),
		[]byte("apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nfailCgroupV1: false\n"), 0o600))
	ask := func(text string) string {
		out, err := p.asks(t, "kubelet", "--config="+write(t, "c.yaml", text), "--config-dir="+dropIns,
			"--root-dir="+t.TempDir(), "--lock-file="+filepath.Join(t.TempDir(), "none", "lock"))
		assert.Assert(t, err != nil, "the kubelet ends without an error:\n%s", out)
		return out
	}
	passed := func(out string) bool {
		return strings.Contains(out, "unable to acquire file lock") || strings.Contains(out, "unable to load client CA file")
	}
	out := ask(text)
	assert.Assert(t, passed(out) && !strings.Contains(out, lenient), "kubelet:\n%s", out)
	out = ask(text + "nosuchfield: 1\n")
	assert.Assert(t, strings.Contains(out, lenient), "the kubelet says nothing of an unknown field:\n%s", out)
	out = ask(strings.Replace(text, "authorization:", "maxPods: -1\nauthorization:", 1))
	assert.Assert(t, !passed(out), "the kubelet takes maxPods: -1:\n%s", out)
}

// containerd has containerd merge its document with its defaults.
func (p unpacked) containerd(t *testing.T, text string) {
	t.Helper()
	ask := func(text string) (string, string, error) {
		cmd := exec.CommandContext(t.Context(), p.path("containerd"), "--config="+write(t, "c.toml", text), "config", "dump")
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		return string(out), stderr.String(), err
	}
	out, said, err := ask(text)
	assert.NilError(t, err, "containerd:\n%s", said)
	assert.Assert(t, !strings.Contains(strings.ToLower(said), "unknown"), "containerd:\n%s", said)
	assert.Assert(t, strings.Contains(out, "SystemdCgroup = true"), "containerd does not take the runtime's options:\n%s", out)
	_, said, _ = ask(text + "\n[plugins.'io.containerd.cri.v1.images'.nosuchfield]\nx = 1\n")
	assert.Assert(t, strings.Contains(said, "unknown"), "containerd says nothing of an unknown field:\n%s", said)
}
