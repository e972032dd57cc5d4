package exporter

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strconv"

	"github.com/hardtack/packer-plugin-hardtack/pkg/node/controller"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// TargetsPath is where lists of targets are, as http_sd_configs of Prometheus takes them: by the job's name. A Prometheus then needs no
// rights to list nodes and pods, and no support for Kubernetes, which Debian's is built without.
const TargetsPath = "/targets"

// The ports of pods, as the manifests of the image have them.
const (
	corednsPort       = 9153
	metricsServerPort = 10250
)

// Target is something that runs and has an address.
type Target struct {
	Name    string
	Address netip.Addr
}

// Lists returns the targets of each job that is not on masters. A target without an address is none yet.
type Lists map[string]func(context.Context) ([]Target, error)

// NewLists returns the lists of a cluster: kubelets, and pods of kube-system by their label k8s-app.
func NewLists(nodes func(context.Context) ([]controller.Node, error), pods func(ctx context.Context, app string) ([]Target, error)) Lists {
	of := func(app string) func(context.Context) ([]Target, error) {
		return func(ctx context.Context) ([]Target, error) { return pods(ctx, app) }
	}
	return Lists{
		"kubelet": func(ctx context.Context) ([]Target, error) {
			all, err := nodes(ctx)
			var out []Target
			for _, n := range all {
				if len(n.Addresses) > 0 {
					out = append(out, Target{n.Name, n.Addresses[0]})
				}
			}
			return out, err
		},
		"coredns":         of("kube-dns"),
		pki.MetricsServer: of(pki.MetricsServer),
	}
}

var targetPorts = map[string]int{"kubelet": role.KubeletPort, "coredns": corednsPort, pki.MetricsServer: metricsServerPort}

// group is Prometheus' JSON.
type group struct {
	Targets []string          `json:"targets"`
	Labels  map[string]string `json:"labels"`
}

// list answers with the targets of a job. After an error Prometheus keeps those that it knows.
func (e *Exporter) list(job string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), patience)
		defer cancel()
		targets, err := e.Lists[job](ctx)
		if err != nil {
			http.Error(w, fmt.Sprintf("listing targets of %s: %v; next: journalctl -u kube-apiserver on this master", job, err), http.StatusServiceUnavailable)
			return
		}
		groups := make([]group, 0, len(targets))
		for _, t := range targets {
			if t.Address.IsValid() {
				groups = append(groups, group{[]string{net.JoinHostPort(t.Address.String(), strconv.Itoa(targetPorts[job]))}, map[string]string{"instance": t.Name}})
			}
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(groups) // who does not read to the end asks again
	})
}
