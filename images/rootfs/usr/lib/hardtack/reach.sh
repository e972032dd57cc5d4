#!/bin/sh
# Waits until this machine reaches Services, by kube-proxy's first rules, and pods of other nodes, by flannel's file: for two minutes
# at most, since an API server needs the agent of a node whose network fails as well, to ask its kubelet why. It sends nothing:
# before those rules a packet to a Service leaves the machine. What an operator has put in the place of either is not waited for.
set -eu

missing() {
	if systemctl --quiet is-enabled kube-proxy.service && ! nft list map ip kube-proxy service-ips 2>/dev/null | grep -q goto; then
		echo "kube-proxy's rules"
	elif systemctl --quiet is-enabled flanneld.service && [ ! -s /run/flannel/subnet.env ]; then
		echo /run/flannel/subnet.env
	fi
}

for try in $(seq 60); do
	waits=$(missing)
	[ -n "$waits" ] || exit 0
	[ "$try" != 1 ] || echo "waits for $waits"
	sleep 2
done
echo "goes on without $waits"
