package bake_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/hardtack/packer-plugin-hardtack/images"
)

// TestKernelDefaults: the kubelet with protectKernelDefaults starts only where the kernel has these values
// (setupKernelTunables in pkg/kubelet/cm/container_manager_linux.go); machines have them by sysctl.d alone.
func TestKernelDefaults(t *testing.T) {
	text, err := fs.ReadFile(images.FS, "rootfs/usr/lib/sysctl.d/50-hardtack.conf")
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]int{}
	for line := range strings.Lines(string(text)) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), " = "); ok && !strings.HasPrefix(name, "#") {
			if values[name], err = strconv.Atoi(value); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	for name, want := range map[string]int{
		"vm.overcommit_memory": 1, "vm.panic_on_oom": 0, "kernel.panic": 10, "kernel.panic_on_oops": 1,
		"kernel.keys.root_maxkeys": 1000000, "kernel.keys.root_maxbytes": 25000000,
	} {
		if got, ok := values[name]; !ok || got != want {
			t.Errorf("%s is %d (%t), and the kubelet wants %d", name, got, ok, want)
		}
	}
	kubelet, err := fs.ReadFile(images.FS, "rootfs/etc/kubernetes/kubelet.yaml")
	if err != nil || !strings.Contains(string(kubelet), "\nprotectKernelDefaults: true\n") {
		t.Errorf("the kubelet does not protect them: %v", err)
	}
	// Every setting is one that this kernel has, or that its modules bring.
	for name := range values {
		file := filepath.Join("/proc/sys", strings.ReplaceAll(name, ".", "/"))
		if _, err := os.Stat(file); err != nil && !strings.HasPrefix(name, "net.") {
			t.Errorf("%s: the kernel has no such setting: %v", name, err)
		}
	}
}
