package systemd_test

import (
	"strings"
	"testing"

	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// minion makes a machine of role minions whose containerd is a stand-in.
func minion(t *testing.T) container {
	t.Helper()
	c := newContainer(t, role.Set{role.Minions}, "")
	c.write(t, "/etc/systemd/system/containerd.service.d/test.conf", "[Service]\nType=exec\n")
	return c
}

// answers compares the lines "key: value" of a script's output.
func answers(t *testing.T, out string, want map[string]string) {
	t.Helper()
	got := map[string]string{}
	for line := range strings.Lines(out) {
		if key, value, ok := strings.Cut(line, ":"); ok {
			got[key] = strings.TrimSpace(value)
		}
	}
	for key, value := range want {
		if got[key] != value {
			t.Errorf("%s: %q, want %q", key, got[key], value)
		}
	}
}

// TestPodsMetadata asks for the machine's credentials as a container in the host's network does. The slices are made as
// the kubelet makes them, over the bus and with its settings, and the scopes as runc does.
func TestPodsMetadata(t *testing.T) {
	_, out := minion(t).boot(t, `
ip link set lo up
ip address add 169.254.169.254/32 dev lo
ip address add fd00:ec2::254/128 dev lo
serve='use IO::Socket::IP; my $s = IO::Socket::IP->new(LocalHost => $ARGV[0], LocalPort => 80, Listen => 9, V6Only => 1) or die $@; while (my $c = $s->accept) { print $c "credentials\n"; close $c }'
cat >/usr/lib/ask <<'END'
for address in 169.254.169.254 fd00:ec2::254; do
	timeout 2 bash -c "exec 3<>/dev/tcp/$address/80 && cat <&3" 2>/dev/null || echo none
done
END
for address in 169.254.169.254 fd00:ec2::254; do perl -e "$serve" $address & done
until [ "$(bash /usr/lib/ask | xargs)" = "credentials credentials" ]; do sleep 0.2; done
pod() { systemd-run --quiet --scope --property=Delegate=yes --slice="$1" bash /usr/lib/ask | xargs; }
manager='busctl call -- org.freedesktop.systemd1 /org/freedesktop/systemd1 org.freedesktop.systemd1.Manager'
echo "machine: $(bash /usr/lib/ask | xargs)"
for slice in kubepods.slice kubepods-burstable.slice; do
	$manager StartTransientUnit 'ssa(sv)a(sa(sv))' $slice replace 3 Description s "libcontainer container $slice" MemoryAccounting b true DefaultDependencies b false 0 >/dev/null
	until systemctl is-active --quiet $slice; do sleep 0.2; done
	$manager SetUnitProperties 'sba(sv)' $slice true 2 CPUWeight t 79 TasksMax t 1000
done
echo "made over the bus: $(systemctl show --property=Transient --value kubepods.slice)"
echo "guaranteed: $(pod kubepods-pod1.slice)"
echo "burstable: $(pod kubepods-burstable-pod2.slice)"
echo "besteffort: $(pod kubepods-besteffort-pod3.slice)"
systemctl daemon-reload
echo "reloaded: $(pod kubepods-burstable-pod4.slice)"
echo "daemon: $(pod hardtack-node.slice)"
mkdir -p /etc/systemd/system/kubepods.slice.d
echo '# open' >/etc/systemd/system/kubepods.slice.d/10-hardtack.conf
systemctl daemon-reload
echo "opened: $(pod kubepods-burstable-pod5.slice)"
`)
	const all, none = "credentials credentials", "none none"
	answers(t, out, map[string]string{"machine": all, "made over the bus": "yes", "guaranteed": none, "burstable": none,
		"besteffort": none, "reloaded": none, "daemon": all, "opened": all})
}

// TestPodsPackets sends what a pod could say in another's name, from a machine to a second one beside it: a packet of the
// overlay, made by a process without any right, and an address that is not the pod's. Without the rules both arrive.
func TestPodsPackets(t *testing.T) {
	c := minion(t)
	c.write(t, "/usr/lib/listen.pl", `use IO::Socket::INET; $| = 1;
my $s = IO::Socket::INET->new(LocalPort => 5555, Proto => "udp") or die $@;
while ($s->recv(my $data, 2000)) { print "$data from ", $s->peerhost, "\n" }`)
	// An Ethernet frame with a UDP packet from 10.244.9.9 inside a packet of VXLAN's network 1; no sum is checked but IP's.
	c.write(t, "/usr/lib/spoof.pl", `use IO::Socket::INET; my ($to, $port, $mac) = @ARGV;
my $udp = pack("nnnn", 4444, 5555, 8 + 7, 0) . "spoofed";
my @ip = (0x4500, 20 + length $udp, 1, 0, 0x4011, 0, unpack("nn", inet_aton("10.244.9.9")), unpack("nn", inet_aton("10.244.1.1")));
my $sum = 0; $sum += $_ for @ip; $sum = ($sum >> 16) + ($sum & 0xffff) for 1, 2; $ip[5] = ~$sum & 0xffff;
my $frame = pack("H12 H12 n", $mac, "020000000099", 0x0800) . pack("n10", @ip) . $udp;
my $s = IO::Socket::INET->new(PeerAddr => $to, PeerPort => $port, Proto => "udp") or die $@;
$s->send(pack("NN", 0x08000000, 1 << 8) . $frame) or die $!;`)
	c.write(t, "/usr/lib/say.pl", `use IO::Socket::INET;
IO::Socket::INET->new(LocalAddr => $ARGV[0], PeerAddr => "10.244.1.1", PeerPort => 5555, Proto => "udp")->send($ARGV[1]) or die $!;`)
	// usage: overlay ADDRESS OF-PODS ON MAC, as flannel makes it.
	c.write(t, "/usr/lib/overlay", `#!/bin/sh -eu
ip link add flannel.1 address $4 type vxlan id 1 dev $3 local $1 dstport 8472 nolearning
ip address add $2/32 dev flannel.1
ip link set flannel.1 up
`)
	_, out := c.boot(t, `
until systemctl is-active --quiet containerd.service; do sleep 0.2; done
sysctl -qw net.ipv4.ip_forward=1
ip netns add node
ip netns add pod
ip link add east type veth peer name west netns node
ip address add 192.168.77.1/24 dev east
ip link set east up
/usr/lib/overlay 192.168.77.1 10.244.0.0 east 02:00:00:00:00:01
ip route add 10.244.1.0/24 via 10.244.1.0 dev flannel.1 onlink
ip neighbor add 10.244.1.0 dev flannel.1 lladdr 02:00:00:00:00:02
bridge fdb append 02:00:00:00:00:02 dev flannel.1 dst 192.168.77.2
ip netns exec node sh -eu -c 'ip address add 192.168.77.2/24 dev west; ip link set west up; ip link set lo up
	/usr/lib/overlay 192.168.77.2 10.244.1.0 west 02:00:00:00:00:02
	ip route add 10.244.0.0/16 dev flannel.1
	ip link add cbr0 type bridge; ip address add 10.244.1.1/24 dev cbr0; ip link set cbr0 up'
ip link add cbr0 type bridge
ip address add 10.244.0.1/24 dev cbr0
ip link set cbr0 up
ip link add of-pod master cbr0 type veth peer name eth0 netns pod
ip link set of-pod up
ip netns exec pod sh -eu -c 'ip link set lo up; ip link set eth0 up; ip address add 10.244.0.5/24 dev eth0; ip address add 10.244.7.7/32 dev eth0; ip route add default via 10.244.0.1'
nft 'add table ip nat; add chain ip nat post { type nat hook postrouting priority srcnat; }; add rule ip nat post ip saddr 10.244.0.0/16 ip daddr != 10.244.0.0/16 masquerade'
# A Service whose only endpoint is the other machine, as who may write EndpointSlices makes it.
nft 'add chain ip nat pre { type nat hook prerouting priority dstnat; }; add rule ip nat pre ip daddr 10.96.0.9 udp dport 53 dnat to 192.168.77.2:8472'
in_pod() { ip netns exec pod setpriv --reuid=65534 --regid=65534 --clear-groups --bounding-set=-all --inh-caps=-all perl "$@"; }
ip netns exec node perl /usr/lib/listen.pl >>/tmp/got &
until ip netns exec node ss -Hlnu | grep -q :5555; do sleep 0.2; done
heard() { # KEY: what has arrived since the last time, when the pod's own last word has
	for try in $(seq 50); do
		in_pod /usr/lib/say.pl 10.244.0.5 over
		sleep 0.1
		! grep -q over /tmp/got || break
	done
	echo "$1: $(grep -v over /tmp/got | sort | xargs)"
	: >/tmp/got
}
attack() {
	in_pod /usr/lib/say.pl 10.244.0.5 own
	heard "$1, its own packet"
	in_pod /usr/lib/spoof.pl 192.168.77.2 8472 020000000002
	heard "$1, a packet of the overlay"
	in_pod /usr/lib/spoof.pl 10.96.0.9 53 020000000002
	heard "$1, the same through a Service"
	in_pod /usr/lib/say.pl 10.244.7.7 foreign
	heard "$1, a foreign address"
}
nft delete table inet hardtack-pods
attack without
systemctl restart containerd.service
attack with
systemctl restart containerd.service
echo "loaded twice: $(nft list table inet hardtack-pods | grep -c drop)"
`)
	answers(t, out, map[string]string{
		"without, its own packet": "own from 10.244.0.5", "with, its own packet": "own from 10.244.0.5",
		"without, a packet of the overlay": "spoofed from 10.244.9.9", "with, a packet of the overlay": "",
		"without, the same through a Service": "spoofed from 10.244.9.9", "with, the same through a Service": "",
		"without, a foreign address": "foreign from 10.244.7.7", "with, a foreign address": "",
		"loaded twice": "4",
	})
}

// TestDaemonsBeforePods compares the weights of the slices that are neighbours: what the kernel divides a processor by is the
// weight of the slice at the top, and not those of the slices below it.
func TestDaemonsBeforePods(t *testing.T) {
	_, out := minion(t).boot(t, `
weights() { systemctl show --property=CPUWeight --property=IOWeight --value "$(systemctl show --property=ControlGroup --value "$1" | cut --delimiter=/ --fields=2)" | xargs; }
for slice in hardtack-control hardtack-node; do
	systemctl start "$slice.slice"
	echo "$slice: $(weights "$slice.slice")"
done
echo "resolver: $(weights systemd-resolved.service)"
echo "journal: $(weights systemd-journald.service)"
echo "systemd: $(systemctl show --property=CPUWeight --value init.scope)"
echo "network first: $(systemctl show --property=StartupCPUWeight --value systemd-networkd) $(systemctl show --property=After --value systemd-logind systemd-resolved systemd-timesyncd | grep -cw systemd-networkd.service)"
echo "then a node: $(systemctl show --property=StartupCPUWeight --value hardtack.slice hardtack-node containerd hardtack-bootstrap kubelet systemd-logind | xargs)"
echo "later: $(systemctl show --property=StartupCPUWeight --value systemd-journald systemd-timesyncd | xargs)"
systemctl start dbus.service systemd-logind.service
echo "the kubelet asks for: $(sed -n 's/^shutdownGracePeriod: //p' /etc/kubernetes/kubelet.yaml)"
echo "logind gives: $(busctl get-property org.freedesktop.login1 /org/freedesktop/login1 org.freedesktop.login1.Manager InhibitDelayMaxUSec)"
`)
	const asMuch = "1000 1000"
	answers(t, out, map[string]string{
		"hardtack-control": asMuch, "hardtack-node": asMuch, "resolver": asMuch, "journal": asMuch,
		"systemd": "10000", "network first": "10000 3", "then a node": "10000 1000 1000 1000 1000 1000", "later": "20 10",
		"the kubelet asks for": "30s", "logind gives": "t 30000000",
	})
}
