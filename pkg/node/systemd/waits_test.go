package systemd_test

import "testing"

// TestWaits has the scripts that a node's daemons wait with find what is there, wait for what comes later, and leave an
// operator's own network alone. The tunnel's agent waits for the network of its node.
func TestWaits(t *testing.T) {
	_, out := minion(t).boot(t, `
network=/etc/cni/net.d/10-containerd-net.conflist
later() { sleep 1; mkdir -p "${1%/*}"; echo later >"$1"; }
: >/run/empty
echo "there: $(/usr/lib/hardtack/wait.sh /etc/passwd /run/empty,/etc/group && echo yes)"
later /run/a/late & /usr/lib/hardtack/wait.sh /etc/passwd /run/empty,/run/a/late >/dev/null
echo "file: $(cat /run/a/late)"
echo "come after a node: $(systemctl show --property=After --value kube-proxy flanneld konnectivity-agent hardtack-notices | grep -cw hardtack-registered.service)"
# A node that has not joined holds up nothing.
/usr/lib/hardtack/registered.sh
mkdir -p /var/lib/kubelet/pki
echo joined >/var/lib/kubelet/pki/kubelet-client-current.pem
# Here they would wait for ever.
systemctl stop hardtack-node.service hardtack-bootstrap.service
echo of an earlier boot >$network
anew() { sleep 1; rm $network; echo >/run/hardtack/network; later $network; }
anew & systemctl start hardtack-registered.service
echo "network: $(cat $network), $(systemctl is-active hardtack-registered.service)"
rm $network
sed -i /^conf_template/d /etc/containerd/config.toml
/usr/lib/hardtack/registered.sh
echo "own network: goes on"
# Rules as kube-proxy's, and the file that flannel writes.
echo "tunnel waits: $(systemctl show --property=ExecStartPre --value konnectivity-agent | grep -c /reach.sh)"
(
	sleep 1
	nft 'add table ip kube-proxy; add chain ip kube-proxy s; add map ip kube-proxy service-ips { type ipv4_addr . inet_proto . inet_service : verdict; }'
	sleep 2
	nft 'add element ip kube-proxy service-ips { 10.96.0.1 . tcp . 443 : goto s }'
	later /run/flannel/subnet.env
) &
echo "reached: $(/usr/lib/hardtack/reach.sh), $(cat /run/flannel/subnet.env)"
rm /run/flannel/subnet.env
nft delete table ip kube-proxy
systemctl mask flanneld.service kube-proxy.service
echo "without either: $(/usr/lib/hardtack/reach.sh)"
`)
	answers(t, out, map[string]string{"there": "yes", "file": "later", "come after a node": "4", "network": "later, active", "own network": "goes on",
		"tunnel waits": "1", "reached": "waits for kube-proxy's rules, later", "without either": ""})
}
