package systemd_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hardtack/packer-plugin-hardtack/pkg/node/reason"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// program builds a Go program for the container.
func (c container) program(t *testing.T, source, name string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "build", "-o", filepath.Join(c.root, name), source)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("building %s: %v\n%s", source, err, text)
	}
}

// TestUserDataAgain boots a minion whose metadata service comes after the reader has given up, and then answers with 400,
// 302, 403 and 404 before it has the user data. The boot goes on without roles, and when the reader succeeds
// everything starts that was skipped or failed for want of it.
func TestUserDataAgain(t *testing.T) {
	c := newContainer(t, role.Set{role.Minions}, "KUBELET_HOSTNAME=--hostname-override=a\n")
	if err := os.Rename(filepath.Join(c.root, "etc/hardtack/user-data"), filepath.Join(c.root, "etc/late-user-data")); err != nil {
		t.Fatal(err)
	}
	c.program(t, "./testdata/metadata", "usr/lib/metadata")
	c.write(t, "/usr/lib/systemd/system/metadata.service", "[Service]\nExecStart=/usr/lib/metadata /etc/late-user-data 400 302 403 404\n")
	c.write(t, "/etc/test-cmdline", "hardtack.userdata=imds hardtack.imds=http://127.0.0.1:8169\n")
	c.write(t, "/etc/systemd/system/hardtack-userdata.service.d/test.conf",
		"[Service]\nBindReadOnlyPaths=/etc/test-cmdline:/proc/cmdline\nExecStart=\nExecStart=/usr/lib/hardtack/bin/hardtack-userdata --deadline=1s\n")
	c.write(t, "/etc/systemd/system/containerd.service.d/test.conf", "[Service]\nType=exec\n")
	// The boot is over before the reader succeeds.
	c.write(t, "/etc/systemd/system/report.service.d/test.conf", "[Unit]\nAfter=multi-user.target\n")
	console, out := c.boot(t, `
tries() { until [ "$(systemctl show --value --property=NRestarts hardtack-userdata.service)" -ge $1 ]; do sleep 0.1; done; }
tries 1
echo before: $(systemctl is-active multi-user.target)
echo before: $(systemctl show --value --property=ConditionResult kubelet.service containerd.service)
echo before: $(systemctl show --value --property=ActiveState hardtack-node.service hardtack-ready.service hardtack-renew.timer)
mkdir -p /srv/store/minions
echo '{"token":"abcdef.0123456789abcdef","expires":"2999-01-02T03:04:05Z"}' >/srv/store/minions/bootstrap-token
systemctl start metadata.service
until systemctl is-active --quiet hardtack-userdata.service; do sleep 0.2; done
echo tries: $(systemctl show --value --property=NRestarts hardtack-userdata.service)
for unit in containerd.service hardtack-node.service hardtack-ready.service hardtack-renew.timer; do until systemctl is-active --quiet $unit; do sleep 0.2; done; done
until systemctl is-active hardtack-bootstrap.service | grep --quiet activating && systemctl list-jobs | grep --quiet kubelet.service; do sleep 0.2; done
echo after: $(systemctl show --value --property=ConditionResult hardtack-bootstrap.service containerd.service)
echo after: $(systemctl show --value --property=ConditionResult kube-apiserver.service etcd.service)
`)
	for _, want := range []string{"before: active\n", "before: no no\n", "before: inactive inactive inactive\n", "after: yes yes\n", "after: no no\n"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is not in\n%s", want, out)
		}
	}
	// One failure before the service was there at the least, and one for each of its wrong answers.
	if strings.Contains(out, "tries: 0\n") || strings.Contains(out, "tries: 4\n") || !strings.Contains(out, "tries: ") {
		t.Errorf("the reader has not failed five times:\n%s", out)
	}
	causes := map[string]bool{}
	for _, line := range console {
		if f, ok := reason.Parse(line); ok && f.Unit == "hardtack-userdata.service" {
			for _, cause := range []string{"connection refused", "status 400", "status 302", "status 403", "started without user data"} {
				causes[cause] = causes[cause] || strings.Contains(f.Cause+f.Next, cause)
			}
		}
	}
	for cause, said := range causes {
		if !said {
			t.Errorf("the console does not say %q", cause)
		}
	}
	if len(causes) == 0 {
		t.Error("the console says nothing of the reader")
	}
}
