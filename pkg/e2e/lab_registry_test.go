package e2e

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/hardtack/packer-plugin-hardtack/pkg/image/oci"
	"github.com/hardtack/packer-plugin-hardtack/pkg/lab"
)

// privateImage is an image of a registry that machines know by its mirror alone, which is the lab's.
const privateImage = "registry.example.org/private/hello:1"

const privatePod = `
apiVersion: v1
kind: Pod
metadata: {name: private}
spec: {containers: [{name: hello, image: "` + privateImage + `", args: [serve]}]}
`

// labPulls: without credentials in the store a pod's image is refused, and the kubelet says whose are missing and what to do; with them the pod
// runs, and nothing was started again. They are neither in user data nor on the disk of the machine.
func labPulls(t *testing.T, r *running) {
	if _, err := r.Load(t.Context(), helloArchive(t)); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "private.yaml")
	if err := os.WriteFile(file, []byte(privatePod), 0o600); err != nil {
		t.Fatal(err)
	}
	r.mustKubectl(t, "apply", "-f", file)
	r.until(t, "the image is refused", func(lab.Status) bool {
		out, err := r.kubectl(t.Context(), "get", "events", "--field-selector", "involvedObject.name=private", "-o", "jsonpath={.items[*].message}")
		return err == nil && strings.Contains(out, "authorization failed") // containerd's words for a registry's 401
	})
	node, err := r.kubectl(t.Context(), "get", "pod", "private", "-o", "jsonpath={.spec.nodeName}")
	if err != nil {
		t.Fatal(err)
	}
	machine := ""
	for _, m := range r.until(t, "the cluster is ready", ready).Machines {
		if m.Name == strings.TrimSpace(node) {
			machine = m.ID
		}
	}
	journal := r.ask(t, machine, "journalctl -u kubelet --grep 'credentials of registry' -o cat | tail -n 1")
	if !strings.Contains(journal, "next: hardtack registry login --cluster demo "+lab.RegistryHost()) {
		t.Errorf("the kubelet says %q", journal)
	}
	const password = "pass-word-of-the-lab"
	cmd := exec.CommandContext(t.Context(), r.bin, "lab", "aws", "--name", r.home.Name, r.bin, "registry", "login", "--cluster", "demo", "--username", "robot", lab.RegistryHost())
	cmd.Env, cmd.Stdin = r.env, strings.NewReader(password+"\n")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("registry login: %v: %s", err, out)
	}
	r.until(t, "the pod runs", func(lab.Status) bool {
		out, err := r.kubectl(t.Context(), "get", "pod", "private", "-o", "jsonpath={.status.phase}")
		return err == nil && strings.TrimSpace(out) == "Running"
	})
	if out := r.ask(t, machine, "grep -rl "+password+" /etc /run/hardtack /var/lib/hardtack /var/lib/kubelet /var/lib/containerd/io.containerd.metadata.v1.bolt 2>/dev/null | wc -l"); strings.TrimSpace(out) != "0" {
		t.Errorf("%s files of the machine have the password", out)
	}
	r.mustKubectl(t, "delete", "-f", file, "--wait=false")
}

// helloArchive is an archive of OCI's form with the example program as a private image.
func helloArchive(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	bin := filepath.Join(dir, "hello")
	build := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-o", bin, "../../cmd/hardtack-hello")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building the example program: %v: %s", err, out)
	}
	program, err := os.ReadFile(bin)
	if err != nil {
		t.Fatal(err)
	}
	archive := filepath.Join(dir, "hello.tar")
	f, err := os.Create(archive)
	if err != nil {
		t.Fatal(err)
	}
	image, tag, _ := strings.Cut(privateImage, ":")
	err = oci.WriteProgram(f, oci.Program{Name: "hello", Content: program, Image: image, Tag: tag, User: oci.NobodyUser, Arch: runtime.GOARCH})
	if err = errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
	return archive
}
