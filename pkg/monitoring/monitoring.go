// Package monitoring says what a Prometheus needs to watch a cluster: where the components' metrics are, when somebody is to be
// woken, and what a dashboard shows.
//
// Its rule: it is the cluster's document as files, the same for the same document. What reads them, and the certificate beside them,
// is not its affair.
package monitoring

import (
	"embed"
	"fmt"
	"slices"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/hardtack/packer-plugin-hardtack/pkg/pki"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
	"github.com/hardtack/packer-plugin-hardtack/pkg/spec"
)

//go:embed rules.yml backup.rules.yml dashboard.json
var assets embed.FS

// The names of the files. Prometheus' configuration names those that it reads, as neighbours.
const (
	Configuration = "prometheus.yml"
	Rules         = "rules.yml"
	BackupRules   = "backup.rules.yml"
	Dashboard     = "dashboard.json"
	// CA has the authority of the API servers and the masters, and KubeletCA that of the kubelets.
	CA        = "ca.crt"
	KubeletCA = "kubelet-ca.crt"
	// Certificate and Key are the Prometheus' own.
	Certificate = "client.crt"
	Key         = "client.key"
)

// Interval is how often everything is scraped, in Prometheus' words: the masters look at their sources as often.
const Interval = "30s"

// Files returns the files without any certificate, by their names.
func Files(c *spec.Complete) (map[string][]byte, error) {
	text, err := yaml.Marshal(configuration(c))
	if err != nil {
		return nil, fmt.Errorf("writing %s: %w", Configuration, err)
	}
	files := map[string][]byte{Configuration: append([]byte(header), text...)}
	for _, name := range append(rules(c), Dashboard) {
		if files[name], err = assets.ReadFile(name); err != nil {
			return nil, err
		}
	}
	return files, nil
}

const header = "# Made by hardtack monitoring from the cluster's document. Add to it what is your own: where alarms go (alerting), and jobs.\n"

// rules are the files of rules that the cluster needs.
func rules(c *spec.Complete) []string {
	if c.Cluster.Etcd.Backup.To == "" || c.Cluster.Etcd.Backup.To == spec.BackupNone {
		return []string{Rules}
	}
	return []string{Rules, BackupRules}
}

// The part of Prometheus' configuration that is written, by its own names.
type (
	prometheus struct {
		Global global   `yaml:"global"`
		Rules  []string `yaml:"rule_files"`
		Jobs   []job    `yaml:"scrape_configs"`
	}
	global struct {
		Scrape   string            `yaml:"scrape_interval"`
		Evaluate string            `yaml:"evaluation_interval"`
		Labels   map[string]string `yaml:"external_labels"`
	}
	job struct {
		Name    string    `yaml:"job_name"`
		Scheme  string    `yaml:"scheme,omitempty"`
		Path    string    `yaml:"metrics_path"`
		TLS     *tls      `yaml:"tls_config,omitempty"`
		DNS     []dns     `yaml:"dns_sd_configs,omitempty"`
		HTTP    []http    `yaml:"http_sd_configs,omitempty"`
		Relabel []relabel `yaml:"relabel_configs,omitempty"`
	}
	tls struct {
		CA          string `yaml:"ca_file"`
		Certificate string `yaml:"cert_file"`
		Key         string `yaml:"key_file"`
		ServerName  string `yaml:"server_name,omitempty"`
	}
	dns struct {
		Names   []string `yaml:"names"`
		Type    string   `yaml:"type"`
		Port    int      `yaml:"port"`
		Refresh string   `yaml:"refresh_interval"`
	}
	http struct {
		URL     string `yaml:"url"`
		TLS     *tls   `yaml:"tls_config"`
		Refresh string `yaml:"refresh_interval"`
	}
	relabel struct {
		From  []string `yaml:"source_labels,flow"`
		Regex string   `yaml:"regex,omitempty"`
		To    string   `yaml:"target_label,omitempty"`
	}
)

func configuration(c *spec.Complete) prometheus {
	w := where{host: role.Masters.Host(c.Cluster.Name), port: c.Cluster.API.Port}
	jobs := []job{
		w.master("kube-apiserver", w.port, Path),
		w.master("hardtack", role.MetricsPort, Path),
	}
	for _, name := range beside(c) {
		jobs = append(jobs, w.master(name, role.MetricsPort, Path+"/"+name))
	}
	jobs = append(jobs, w.kubelet("kubelet", Path), w.kubelet("cadvisor", Path+"/cadvisor"), w.coredns())
	if slices.Contains(c.Cluster.Addons, pki.MetricsServer) {
		jobs = append(jobs, w.metricsServer())
	}
	return prometheus{
		Global: global{Interval, Interval, map[string]string{"cluster": c.Cluster.Name}},
		Rules:  rules(c), Jobs: jobs,
	}
}

// Path is where every component has its metrics; a master has those of the daemons beside it below it, and lists of targets below
// TargetsPath (pkg/node/exporter).
const (
	Path        = "/metrics"
	TargetsPath = "/targets"
)

// beside are the daemons whose metrics every master hands on. A master without a member of etcd has none of etcd's.
func beside(c *spec.Complete) []string {
	names := []string{"konnectivity-server", "kube-controller-manager", "kube-scheduler"}
	for _, g := range c.Groups {
		if g.Roles.Has(role.Masters) && !g.Roles.Has(role.Etcd) {
			return names
		}
	}
	return append([]string{"etcd"}, names...)
}

// where is the cluster.
type where struct {
	host string
	port int
}

// tls is the Prometheus' certificate, and the server's name where it is not the address.
func (w where) tls(ca, server string) *tls { return &tls{ca, Certificate, Key, server} }

// master is a job with all masters, found by their record: they are found while no API server answers. The label instance is the
// machine, whatever the port is.
func (w where) master(name string, port int, path string) job {
	return job{
		Name: name, Scheme: "https", Path: path, TLS: w.tls(CA, w.host),
		DNS:     []dns{{Names: []string{w.host}, Type: "A", Port: port, Refresh: Interval}},
		Relabel: []relabel{{From: []string{"__address__"}, Regex: `(.*):\d+`, To: "instance"}},
	}
}

// listed is a job whose targets a master lists, by the name of the list.
func (w where) listed(name, list, path string) job {
	url := fmt.Sprintf("https://%s:%d%s/%s", w.host, role.MetricsPort, TargetsPath, list)
	return job{Name: name, Path: path, HTTP: []http{{url, w.tls(CA, ""), Interval}}}
}

// kubelet is a job with all nodes.
func (w where) kubelet(name, path string) job {
	j := w.listed(name, "kubelet", path)
	j.Scheme, j.TLS = "https", w.tls(KubeletCA, "")
	return j
}

// coredns has its metrics for whoever reaches the pod.
func (w where) coredns() job { return w.listed("coredns", "coredns", Path) }

// metricsServer asks the API server who it is that asks.
func (w where) metricsServer() job {
	j := w.listed(pki.MetricsServer, pki.MetricsServer, Path)
	j.Scheme, j.TLS = "https", w.tls(CA, pki.MetricsServer+".kube-system.svc")
	return j
}

// Credentials returns the files of a Prometheus' certificate, and of the authorities that it knows servers by.
func Credentials(kubernetes, kubelets pki.Authority, life time.Duration, now time.Time) (map[string][]byte, error) {
	pair, err := pki.MetricsClient(kubernetes, life, now)
	if err != nil {
		return nil, err
	}
	return map[string][]byte{
		CA: pki.EncodeCertificates(kubernetes.Trusted()), KubeletCA: pki.EncodeCertificates(kubelets.Trusted()),
		Certificate: pair.Certificate, Key: pair.Key,
	}, nil
}
