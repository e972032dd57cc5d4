#!/bin/sh
# Has containerd make the pods' network anew, once in each boot, before the kubelet of a node that has joined starts.
#
# containerd makes it when the kubelet passes on the node's addresses, and only where there is none yet. On a root that keeps its
# files that is the network of an earlier boot: of a node that was deleted since and now gets other addresses, or with another MTU.
# A node that has not joined again keeps it for its static pods, and so do pods when the kubelet is only started again. Where
# containerd makes none (an operator's own network), nothing is removed.
set -eu

network=/etc/cni/net.d/10-containerd-net.conflist
mark=/run/hardtack/network
[ ! -s "$mark" ] || exit 0
[ ! -e /run/hardtack/alone/kubelet.env ] || exit 0
grep -qs '^conf_template' /etc/containerd/config.toml || exit 0
rm -f "$network"
echo "made anew in this boot" >"$mark"
