package spec

import (
	"cmp"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"

	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// loopback is where a machine asks its own daemons, and everywhere is to listen on all addresses.
const (
	loopback   = "127.0.0.1"
	everywhere = "::"
)

// listener is where a daemon listens by a flag or a field, and who goes by it without reading the document.
type listener struct {
	component, field string
	port             int
	// own: only programs of the same machine ask.
	own bool
	// who asks, in words before the place.
	who string
}

// listeners finds daemons that would listen elsewhere than where they are asked.
func (f *completer) listeners() {
	const ready, metrics, open = "a machine is ready only when it answers at", "a master hands on its metrics from", "the security groups open"
	known := []listener{
		{"kubeAPIServer", "flags.bind-address", f.out.Cluster.API.Port, false, "machines and clients ask"},
		{"kubeControllerManager", "flags.bind-address", role.ControllerManagerPort, true, metrics},
		{"kubeControllerManager", "flags.secure-port", role.ControllerManagerPort, true, metrics},
		{"kubeScheduler", "flags.bind-address", role.SchedulerPort, true, metrics},
		{"kubeScheduler", "flags.secure-port", role.SchedulerPort, true, metrics},
		{"konnectivityServer", "flags.agents", role.TunnelPort, false, open},
		{"konnectivityServer", "flags.metrics", role.TunnelMetricsPort, true, metrics},
		{"konnectivityAgent", "flags.port", role.TunnelPort, false, "masters take tunnels on"},
		{"kubelet", "flags.healthz-bind-address", role.KubeletHealthPort, true, ready},
		{"kubelet", "flags.healthz-port", role.KubeletHealthPort, true, ready},
		{"kubelet", "flags.address", role.KubeletPort, false, open},
		{"kubelet", "flags.port", role.KubeletPort, false, open},
		{"kubelet", "config.healthzBindAddress", role.KubeletHealthPort, true, ready},
		{"kubelet", "config.healthzPort", role.KubeletHealthPort, true, ready},
		{"kubelet", "config.address", role.KubeletPort, false, open},
		{"kubelet", "config.port", role.KubeletPort, false, open},
		{"kubeProxy", "config.healthzBindAddress", role.KubeProxyHealthPort, false, open},
		{"flannel", "config.Backend.Port", role.VXLANPort, false, open},
		{"etcd", "flags.listen-metrics-urls", role.EtcdMetricsPort, true, ready},
	}
	for _, l := range known {
		field := l.component + "." + l.field
		if f.out.Origins[field].Kind != User {
			continue
		}
		if text, said := f.written(l); said && !l.at(text) {
			f.hint(field, "leave it out", "is %q, but %s %s", text, l.who, l.place())
		}
	}
}

// written is the value in text; false for a field of a document that has none.
func (f *completer) written(l listener) (text string, said bool) {
	section, name, _ := strings.Cut(l.field, ".")
	for _, p := range f.out.components {
		switch {
		case p.name != l.component:
		case section == "flags":
			return p.flags[name].text(), true
		default:
			value, _ := valueAt(p.document.value, strings.Split(name, "."))
			return fmt.Sprint(value), value != nil
		}
	}
	return "", false
}

// place is where the daemon is asked, for messages.
func (l listener) place() string {
	if l.own {
		return net.JoinHostPort(loopback, strconv.Itoa(l.port))
	}
	return fmt.Sprintf("port %d on every address", l.port)
}

// at reports whether the daemon listens where it is asked. The text is a port, an address, both, or such URLs with commas between them.
func (l listener) at(text string) bool {
	for one := range strings.SplitSeq(text, ",") {
		host, port := one, strconv.Itoa(l.port)
		if h, p, err := net.SplitHostPort(strings.TrimPrefix(one, "http://")); err == nil {
			host, port = cmp.Or(h, everywhere), p
		} else if _, err := strconv.Atoi(one); err == nil {
			host, port = everywhere, one
		}
		a, err := netip.ParseAddr(host)
		if err == nil && port == strconv.Itoa(l.port) && (a.IsUnspecified() || l.own && host == loopback) {
			return true
		}
	}
	return false
}
