package systemd_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/pki"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki/authority"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki/store"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// TestRenewRestarts boots a machine with the real etcd, and replaces the authority that etcd reads only at its start: the
// renewal's unit, with its own rights, starts etcd again once, and nothing when nothing was replaced.
func TestRenewRestarts(t *testing.T) {
	c := newContainer(t, role.Set{role.Etcd}, "", "etcd")
	const place, next = "/srv/store", "/etc/hardtack/next"
	if err := os.CopyFS(filepath.Join(c.root, next), os.DirFS(filepath.Join(c.root, place))); err != nil {
		t.Fatal(err)
	}
	if _, err := authority.RotateAuthority(t.Context(), store.NewDir(filepath.Join(c.root, next)), "demo", pki.EtcdPeerCA, authority.RotateOptions{Now: time.Now()}); err != nil {
		t.Fatal(err)
	}
	_, out := c.boot(t, `
until systemctl is-active --quiet hardtack-member.service; do sleep 0.2; done # which starts etcd a second time, open to clients
started() { systemctl show --value --property=InvocationID etcd.service; }
first=$(started)
systemctl start hardtack-renew.service
test "$first" = "$(started)" && echo nothing was replaced
cp -a `+next+`/. `+place+`/
systemctl start hardtack-renew.service && echo renewed
test "$first" != "$(started)" && systemctl is-active etcd.service
second=$(started)
systemctl start hardtack-renew.service
test "$second" = "$(started)" && echo once
grep -c BEGIN /run/hardtack/pki/etcd/peer-ca.crt
`)
	if want := "nothing was replaced\nrenewed\nactive\nonce\n2\n"; !strings.HasSuffix(out, want) {
		t.Errorf("%q, want %q", out, want)
	}
}

// TestRenewSkipped: a clock that is set right starts the renewal while a node joins. Nothing is due then; where the node has a
// certificate, the renewal starts.
func TestRenewSkipped(t *testing.T) {
	_, out := minion(t).boot(t, `
looked() { systemctl show --value --property="$1" hardtack-renew.service; }
runs() { # it waits for the store, once it runs
	before=$(looked ConditionTimestampMonotonic)
	systemctl start --no-block hardtack-renew.service
	until [ "$(looked ConditionTimestampMonotonic)" != "$before" ]; do sleep 0.1; done
	looked ConditionResult
}
rm -f /var/lib/kubelet/pki/kubelet-client-current.pem
echo "joining: $(runs)"
mkdir -p /run/hardtack/pki/node
touch /run/hardtack/pki/node/kubelet-client-current.pem
echo "joined: $(runs)"
`)
	answers(t, out, map[string]string{"joining": "no", "joined": "yes"})
}
