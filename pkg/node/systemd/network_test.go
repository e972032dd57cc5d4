package systemd_test

import (
	"testing"

	"github.com/hardtack/packer-plugin-hardtack/images/imagestest/programs"
)

// TestNetworkAnew has the real containerd make the pods' network for a node that has got other addresses since its last boot. The
// kubelet is a stand-in that passes the node's addresses on, as the kubelet does when it starts.
func TestNetworkAnew(t *testing.T) {
	c := minion(t)
	lock := programs.DefaultLock(t)
	programs.NeedBuilt(t, lock, "containerd", "kubernetes", "cri-tools")
	programs.Install(t, c.root, lock, "containerd", "kubernetes", "cri-tools")
	c.write(t, "/usr/bin/kubelet", "#!/bin/sh\n[ ! -e /etc/pod-cidr ] || crictl update-runtime-config --pod-cidr=$(cat /etc/pod-cidr)\nexec sleep infinity\n")
	c.write(t, "/etc/systemd/system/kubelet.service.d/test.conf", "[Service]\nType=exec\nWatchdogSec=0\n")
	c.write(t, "/etc/cni/net.d/10-containerd-net.conflist", `{"cniVersion": "1.0.0", "name": "hardtack", "plugins": [
{"type": "bridge", "mtu": 1400, "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.244.1.0/24"}]]}}]}`)
	_, out := c.boot(t, `
network=/etc/cni/net.d/10-containerd-net.conflist
addresses() { echo $(grep -o 'mtu": [0-9]*' $network) $(grep -o 'subnet": "[0-9./]*' $network); }
wait_for() { for i in $(seq 100); do eval "$1" && return; sleep 0.1; done; }
until systemctl is-active --quiet containerd.service hardtack-node.service; do sleep 0.1; done
systemctl stop hardtack-bootstrap.service
mkdir -p /run/hardtack/pki/kubelet /run/hardtack/alone
echo x | tee /run/hardtack/pki/kubelet/ca.crt >/run/hardtack/pki/kubelet/kubeconfig
echo KUBELET_ALONE= >/run/hardtack/alone/kubelet.env
wait_for 'systemctl is-active --quiet kubelet.service'
echo "alone: $(addresses)"
echo 10.244.2.0/24 >/etc/pod-cidr
rm -r /run/hardtack/alone
echo x >/run/hardtack/pki/node/kubelet-client-current.pem
systemctl restart kubelet.service
wait_for 'grep -qs 10.244.2.0 $network'
echo "joined: $(addresses)"
systemctl start hardtack-registered.service
echo "registered: $(systemctl is-active hardtack-registered.service)"
file=$(stat -c %i $network)
systemctl restart kubelet.service
[ "$file" = "$(stat -c %i $network)" ] && echo "again: the same file"
rm /run/hardtack/network
sed -i /^conf_template/d /etc/containerd/config.toml
systemctl restart kubelet.service
[ "$file" = "$(stat -c %i $network)" ] && echo "own network: the same file"
`)
	answers(t, out, map[string]string{
		"alone": `mtu": 1400 subnet": "10.244.1.0/24`, "joined": `mtu": 8951 subnet": "10.244.2.0/24`, "registered": "active",
		"again": "the same file", "own network": "the same file",
	})
}
