package e2e

import (
	"strings"
	"testing"

	"github.com/hardtack/packer-plugin-hardtack/pkg/lab"
)

// arm64Variable names a disk for arm64.
const arm64Variable = "HARDTACK_ARM64_IMAGE"

func arm64Image(t *testing.T) string {
	t.Helper()
	needTime(t)
	return namedDisk(t, arm64Variable, "for arm64", "arm64")
}

// TestLabARM64 has machines of arm64 become a cluster whose API server reaches pods.
func TestLabARM64(t *testing.T) {
	disk := arm64Image(t)
	r := startLab(t, "arm64", lab.DefaultCluster+"arch: arm64\ngroups:\n- {name: masters, roles: [masters, etcd]}\n- {name: minions, roles: [minions]}\n", "--detach", "--image", disk)
	r.until(t, "the cluster is ready", ready)
	out, err := r.kubectl(t.Context(), "get", "nodes", "-o", `jsonpath={.items[*].metadata.labels.kubernetes\.io/arch}`)
	if err != nil || strings.TrimSpace(out) != "arm64" {
		t.Errorf("the nodes are of %q, %v", out, err)
	}
	labReaches(t, r)
}
