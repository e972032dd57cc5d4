#!/bin/sh
# Waits for the pods' network, which containerd writes when the kubelet has it from its node: for two minutes at most. It
# waits for nothing where the node has not joined, since its daemons wait for that themselves, and where containerd writes
# none (an operator's own network). On a root that keeps its files one of an earlier boot may be there, until network.sh says that
# it is gone.
set -eu

network=/etc/cni/net.d/10-containerd-net.conflist
mark=/run/hardtack/network
grep -qs '^conf_template' /etc/containerd/config.toml || exit 0
[ -s /var/lib/kubelet/pki/kubelet-client-current.pem ] || exit 0
[ ! -s "$mark" ] || [ ! -s "$network" ] || exit 0
exec /usr/lib/hardtack/bin/hardtack-agent wait --timeout=2m --file="$mark" --file="$network"
