#!/bin/sh
# Waits until this machine reaches Services, and pods of other nodes: for two minutes at most, since an API server needs the agent
# of a node whose network fails as well, to ask its kubelet why. An operator's own network, without flanneld, has no file of its.
set -eu

set --
! systemctl --quiet is-enabled flanneld.service || set -- --file=/run/flannel/subnet.env
exec /usr/lib/hardtack/bin/hardtack-agent wait --timeout=2m --service "$@"
