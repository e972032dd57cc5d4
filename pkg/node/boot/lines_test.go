package boot

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hardtack/packer-plugin-hardtack/units"
)

// imageUnits are the image's own, where a machine has them.
func imageUnits(t *testing.T) tree {
	t.Helper()
	out := tree{}
	names, err := units.FS.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range names {
		if strings.HasSuffix(n.Name(), ".service") {
			text, err := units.FS.ReadFile(n.Name())
			if err != nil {
				t.Fatal(err)
			}
			out["usr/lib/systemd/system/"+n.Name()] = string(text)
		}
	}
	return out
}

func userDataOf(roles map[string]string) string {
	var b strings.Builder
	b.WriteString("#cloud-config\nwrite_files:\n")
	for _, role := range []string{"masters", "minions", "etcd"} {
		if text := roles[role]; text != "" {
			b.WriteString("- path: /etc/sysconfig/kubernetes-" + role + "\n  content: |\n    " + strings.ReplaceAll(strings.TrimSpace(text), "\n", "\n    ") + "\n")
		}
	}
	return b.String()
}

// TestLines reads role files against the image's own units: a line that nobody reads is named, with the nearest.
func TestLines(t *testing.T) {
	needRoot(t)
	for name, tt := range map[string]struct {
		roles     map[string]string
		want      []string
		corrected string
	}{
		"the seed's": {map[string]string{"minions": "CLUSTER_NAME=cncfdemo\nCLOUD_PROVIDER=--cloud-provider=aws\nKUBELET_HOSTNAME=--hostname-override=ip-172-20-0-12.us-west-2.compute.internal"}, []string{
			"/etc/sysconfig/kubernetes-minions: warning: the line CLOUD_PROVIDER=--cloud-provider=aws is not used: Kubernetes has no built-in cloud providers since 1.31 (leave it out; CLOUD_PROVIDER=--cloud-provider=external is for a cluster that runs a cloud controller manager)",
		}, "CLOUD_PROVIDER=\n"},
		"external":    {map[string]string{"minions": "CLUSTER_NAME=a\nCLOUD_PROVIDER=--cloud-provider=external"}, nil, ""},
		"all that is": {map[string]string{"masters": "CLUSTER_NAME=a\nSTORE=x\nCA_FILE=x\nSERVICE_CIDR=x\nCLUSTER_CIDR=x\nAPI_PORT=x\nETCD_SERVERS=x\nKUBE_APISERVER_ARGS=x\nKUBE_SCHEDULER_ARGS=x\nLEADER_ELECT=x", "etcd": "CLUSTER_NAME=a\nETCD_MEMBER=a\nETCD_QUOTA_BACKEND_BYTES=1"}, nil, ""},
		"typing": {map[string]string{"masters": "CLUSTER_NAME=a\nKUBE_APISERVER_ARG=--v=4", "minions": "CLUSTER_NAMES=a\nCLUSTER_NAME=a\nETCD_MEMBER=a\nmagic=1"}, []string{
			"/etc/sysconfig/kubernetes-masters:2: warning: the line KUBE_APISERVER_ARG= is read by no program on this machine (did you mean \"KUBE_APISERVER_ARGS\"?)",
			"/etc/sysconfig/kubernetes-minions:1: warning: the line CLUSTER_NAMES= is read by no program on this machine (did you mean \"CLUSTER_NAME\"?)",
			"/etc/sysconfig/kubernetes-minions:3: warning: the line ETCD_MEMBER= is read by no program on this machine",
			"/etc/sysconfig/kubernetes-minions:4: warning: the line magic= is read by no program on this machine",
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			root := imageUnits(t).with(tree{fileSource: userDataOf(tt.roles)}).make(t)
			report := mustRun(t, root)
			var got []string
			for _, f := range report.Findings {
				got = append(got, f.String())
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
			corrected, err := os.ReadFile(filepath.Join(root, correctedFile))
			if string(corrected) != tt.corrected || (err != nil) != (tt.corrected == "") {
				t.Errorf("corrected: %q, %v", corrected, err)
			}
		})
	}
}
