package main

import (
	"io/fs"
	"path"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/hardtack/packer-plugin-hardtack/images"
	"github.com/hardtack/packer-plugin-hardtack/pkg/image/lock"
)

func plainFile(t *testing.T, name string) string {
	t.Helper()
	data, err := fs.ReadFile(images.FS, "rootfs/"+name)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// TestContainerdConfigurationIsTheLocks checks that containerd's configuration repeats the locks' values. Otherwise
// the first pod would need a registry, and find no plugin.
func TestContainerdConfigurationIsTheLocks(t *testing.T) {
	config := plainFile(t, "etc/containerd/config.toml")
	template := plainFile(t, "etc/containerd/cni-template.conflist")
	for _, name := range ownLocks() {
		l, err := readLock(name)
		if err != nil {
			t.Fatal(err)
		}
		pause, ok := l.Component("pause")
		if want := `sandbox = "registry.k8s.io/pause:` + pause.Version + `"`; !ok || !strings.Contains(config, want) {
			t.Errorf("%s: config.toml has no %s", name, want)
		}
		var plugins []string
		for _, p := range l.Placements(lock.FromRelease) {
			if p.Component == "cni-plugins" {
				plugins = append(plugins, path.Base(p.Path))
				if want := `bin_dirs = ["` + path.Dir(p.Path) + `"]`; !strings.Contains(config, want) {
					t.Errorf("%s: config.toml has no %s, where %s is", name, want, p.Path)
				}
			}
		}
		for line := range strings.Lines(template) {
			_, rest, ok := strings.Cut(line, `"type": "`)
			plugin, _, _ := strings.Cut(rest, `"`)
			if ok && !slices.Contains(plugins, plugin) {
				t.Errorf("%s: the CNI template uses %s, and the lock has %v", name, plugin, plugins)
			}
		}
	}
}

// Ranges are in several files, since every daemon has its own; they must say the same.
func TestAddressRangesAgree(t *testing.T) {
	const pods, services, dns = "10.244.0.0/14", "10.96.0.0/16", "10.96.0.10"
	for file, want := range map[string]string{
		"etc/kubernetes/config":          "CLUSTER_CIDR=--cluster-cidr=" + pods + "\n",
		"etc/kubernetes/kube-proxy.yaml": "clusterCIDR: " + pods + "\n",
		"etc/kubernetes/flannel.json":    `"Network": "` + pods + `"`,
		"etc/kubernetes/kubelet.yaml":    "clusterDNS:\n  - " + dns + "\n",
	} {
		if !strings.Contains(plainFile(t, file), want) {
			t.Errorf("%s has no %q", file, want)
		}
	}
	if want := "SERVICE_CIDR=--service-cluster-ip-range=" + services + "\n"; !strings.Contains(plainFile(t, "etc/kubernetes/config"), want) {
		t.Errorf("etc/kubernetes/config has no %q", want)
	}
}

// TestConfigurationKinds checks that configuration files are YAML with a kind that their daemon reads. (The daemons
// themselves check the fields: they refuse unknown ones.)
func TestConfigurationKinds(t *testing.T) {
	for file, kind := range map[string]string{
		"authentication.yaml":           "AuthenticationConfiguration",
		"kube-scheduler.yaml":           "KubeSchedulerConfiguration",
		"kube-proxy.yaml":               "KubeProxyConfiguration",
		"kubelet.yaml":                  "KubeletConfiguration",
		"kubelet.conf.d/00-readme.conf": "KubeletConfiguration",
	} {
		var doc struct {
			Kind       string `yaml:"kind"`
			APIVersion string `yaml:"apiVersion"`
		}
		if err := yaml.Unmarshal([]byte(plainFile(t, "etc/kubernetes/"+file)), &doc); err != nil || doc.Kind != kind || doc.APIVersion == "" {
			t.Errorf("%s is %+v, %v, want kind %s", file, doc, err, kind)
		}
	}
}
