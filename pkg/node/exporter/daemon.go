package exporter

import (
	"fmt"

	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// Path is where the own metrics are; those of a daemon are below it, by its name.
const Path = "/metrics"

// daemon is one whose metrics are handed on.
type daemon struct {
	name string
	// role is the one that a machine runs it for.
	role            role.Role
	scheme, address string
}

func (d daemon) path() string { return Path + "/" + d.name }

// daemons listen on 127.0.0.1 only, and stay there: etcd and konnectivity-server serve their metrics to whoever connects, and with a
// client certificate for etcd's metrics comes the right to read and write every key. A machine of etcd that is no master has no way
// to its metrics; what its agent reports to the store is among the own metrics.
var daemons = []daemon{
	{"etcd", role.Etcd, "http", loopback(role.EtcdMetricsPort)},
	{"konnectivity-server", role.Masters, "http", loopback(role.TunnelMetricsPort)},
	{"kube-controller-manager", role.Masters, "https", loopback(role.ControllerManagerPort)},
	{"kube-scheduler", role.Masters, "https", loopback(role.SchedulerPort)},
}

func loopback(port int) string { return fmt.Sprintf("127.0.0.1:%d", port) }

// Daemons are the names of the daemons whose metrics a machine with these roles hands on; without masters it hands on none.
func Daemons(roles role.Set) []string {
	var names []string
	for _, d := range daemons {
		if roles.Has(role.Masters) && roles.Has(d.role) {
			names = append(names, d.name)
		}
	}
	return names
}
