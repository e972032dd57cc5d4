package kubelet_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hardtack/packer-plugin-hardtack/images/imagestest/programs"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/envfile"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/kubelet"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/machine"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// realKubelet returns the path of the lock's kubelet. It skips the test if Kubernetes is not built.
func realKubelet(t *testing.T) string {
	t.Helper()
	lock, root := programs.DefaultLock(t), t.TempDir()
	programs.NeedBuilt(t, lock, "kubernetes")
	programs.Install(t, root, lock, "kubernetes")
	return filepath.Join(root, programs.Bin, "kubelet")
}

// The kubelet's messages about an unknown field, and after its configuration was read and validated. It has no flag to
// exit there: a lock file in a missing directory is the next error.
const (
	lenient = "strict decoding"
	passed  = "unable to acquire file lock"
)

// ask runs the kubelet with a configuration, a drop-in and the environment's flags, as the unit does.
func ask(t *testing.T, program, config, dropIn, env string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"kubelet.yaml":           config,
		"conf.d/50-machine.conf": dropIn,
		// The test's machine may have version 1 of control groups.
		"conf.d/90-test.conf": "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nfailCgroupV1: false\n",
	} {
		file := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	args := []string{"--config=" + dir + "/kubelet.yaml", "--config-dir=" + dir + "/conf.d", "--root-dir=" + dir, "--lock-file=" + dir + "/none/lock"}
	for _, name := range []string{"KUBELET_HOSTNAME", "NODE_ADDRESS", "NODE_LABELS"} {
		if value, _ := envfile.Parse(env).Get(name); value != "" {
			args = append(args, value)
		}
	}
	out, err := exec.CommandContext(t.Context(), program, args...).CombinedOutput()
	if err == nil {
		t.Fatalf("the kubelet ends without an error:\n%s", out)
	}
	return string(out)
}

// TestRealKubelet expects that the real kubelet accepts the generated configuration, and refuses what this package refuses.
func TestRealKubelet(t *testing.T) {
	program := realKubelet(t)
	c, f := config(), facts(t)
	f.Roles = role.NewSet(role.All()...)
	c.Node.Labels = map[string]string{"example.com/disk": "nvme", "node.kubernetes.io/pool": ""}
	c.Node.Taints = []string{"dedicated=batch:NoExecute"}
	p, err := kubelet.New(c, f)
	if err != nil {
		t.Fatal(err)
	}
	dropIn, env := p.Files[0].Content, p.Files[len(p.Files)-1].Content
	image := string(fromImage(t, "/etc/kubernetes/kubelet.yaml"))
	tests := []struct {
		name                string
		config, dropIn, env string
		want, wantNot       string
	}{
		{"as it is", image, dropIn, env, passed, lenient},
		// The kubelet ignores unknown fields in a drop-in, but not in its configuration.
		{"strictly", dropIn, image, env, passed, lenient},
		{"an unknown field", dropIn + "nosuchfield: 1\n", image, env, lenient, ""},
		{"a wrong value", image, dropIn + "podsPerCore: -1\n", env, "podsPerCore", passed},
		{"a taint's effect", image, strings.Replace(dropIn, "effect: NoExecute", "effect: Never", 1), env, "Never", passed},
		{"a forbidden label", image, dropIn, env + "\nNODE_LABELS=--node-labels=node-role.kubernetes.io/masters=", "labels specified with --node-labels", passed},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			out := ask(t, program, test.config, test.dropIn, test.env)
			if !strings.Contains(out, test.want) || test.wantNot != "" && strings.Contains(out, test.wantNot) {
				t.Errorf("want %q and not %q in\n%s", test.want, test.wantNot, out)
			}
		})
	}
	if _, err := machine.CheckLabel("node-role.kubernetes.io/masters", ""); err == nil {
		t.Error("a label that the kubelet refuses is taken")
	}
}
