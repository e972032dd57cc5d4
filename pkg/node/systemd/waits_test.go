package systemd_test

import "testing"

// TestWaits has the scripts before a node's daemons find what is there, wait for what comes later, and leave an operator's own
// network alone.
func TestWaits(t *testing.T) {
	_, out := minion(t).boot(t, `
network=/etc/cni/net.d/10-containerd-net.conflist
later() { sleep 1; mkdir -p "${1%/*}"; echo later >"$1"; }
: >/run/empty
echo "there: $(/usr/lib/hardtack/wait.sh /etc/passwd /run/empty,/etc/group && echo yes)"
later /run/a/late & /usr/lib/hardtack/wait.sh /etc/passwd /run/empty,/run/a/late >/dev/null
echo "file: $(cat /run/a/late)"
later $network & /usr/lib/hardtack/after-node.sh >/dev/null
echo "network: $(cat $network)"
/usr/lib/hardtack/after-node.sh
rm $network
sed -i /^conf_template/d /etc/containerd/config.toml
/usr/lib/hardtack/after-node.sh
echo "own network: goes on"
`)
	answers(t, out, map[string]string{"there": "yes", "file": "later", "network": "later", "own network": "goes on"})
}
