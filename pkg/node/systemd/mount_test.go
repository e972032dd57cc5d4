package systemd_test

import (
	"strings"
	"testing"

	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// TestMount mounts by the service manager. A mount that failed can be tried again, one that is there is not doubled, and
// what needs the directory ends before it is unmounted. The machine knows no devices, so that it is a tmpfs.
func TestMount(t *testing.T) {
	c := newContainer(t, role.Set{role.Etcd}, "")
	c.program(t, "./testdata/mount", "usr/lib/mount")
	_, out := c.boot(t, `
/usr/lib/mount none /var/lib/a-disk nosuchfs ro && echo mounted what there is not
echo failed: $(systemctl show --value --property=LoadState 'var-lib-a\x2ddisk.mount')
/usr/lib/mount tmpfs /var/lib/a-disk tmpfs nodev,nosuid,noexec,noatime
findmnt --noheadings --output FSTYPE,OPTIONS /var/lib/a-disk
/usr/lib/mount tmpfs /var/lib/a-disk tmpfs nodev && echo mounted twice
grep -c /var/lib/a-disk /proc/self/mountinfo
/usr/lib/mount tmpfs /var/lib/etcd tmpfs nodev
systemctl show --value --property=After etcd.service | tr ' ' '\n' | grep var-lib-etcd.mount
`)
	for _, want := range []string{"the job of var-lib-a\\x2ddisk.mount is failed", "tmpfs rw,nosuid,nodev,noexec,noatime", "\n1\n", "\nvar-lib-etcd.mount\n"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is not in\n%s", want, out)
		}
	}
	for _, not := range []string{"mounted what", "mounted twice"} {
		if strings.Contains(out, not) {
			t.Errorf("%q is in\n%s", not, out)
		}
	}
}
