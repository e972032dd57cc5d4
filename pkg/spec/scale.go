package spec

import "github.com/hardtack/packer-plugin-hardtack/pkg/role"

// The flags and fields that depend on how large the cluster may become.
const (
	goawayFlag   = "goaway-chance"
	readsFlag    = "max-requests-inflight"
	mutatingFlag = "max-mutating-requests-inflight"
	qpsFlag      = "kube-api-qps"
	burstFlag    = "kube-api-burst"
	apiServer    = "kubeAPIServer"
	scheduler    = "kubeScheduler"
	clusterDNS   = "coreDNS"
)

// One pod of CoreDNS is for dnsNodes nodes, and the image has leastDNS of them.
const (
	dnsNodes = 16
	leastDNS = 2
)

// From more nodes than these on, a cluster is large and very large: the classes of Kubernetes' own large clusters.
const (
	largeNodes     = 500
	veryLargeNodes = 3000
)

// largeQuota is the database's limit of a very large cluster in bytes, and largeEtcdVolume the size in GiB of a member's volume for it.
const (
	largeQuota      = "8589934592"
	largeEtcdVolume = 25
)

// scaleReasons are why a value that follows from the size of the groups is as it is, with the source, by its component and its name.
var scaleReasons = map[string]string{
	apiServer + " " + goawayFlag: "A client keeps its connection for as long as it works, so that a master that comes back gets none of them: one request in a thousand " +
		"ends its connection, and the client looks for a master again. Source: kube-apiserver's own help, which recommends to begin with .001, and not for a single API server.",
	apiServer + " " + readsFlag: requestsReason, apiServer + " " + mutatingFlag: requestsReason,
	manager + " " + qpsFlag: clientReason, manager + " " + burstFlag: clientReason,
	scheduler + " clientConnection.qps": schedulerReason,
	clusterDNS + " Deployment.spec.replicas": "One pod of CoreDNS for 16 nodes that the groups begin with: pods of all nodes ask it. With null it is left to an autoscaler of yours. " +
		"Source: kops, addons/coredns.addons.k8s.io/k8s-1.12.yaml.template, whose autoscaler has nodesPerReplica 16 and never fewer than two.",
	"etcd " + quotaFlag: "At the limit every write is refused. The largest that etcd's documents suggest, for more than 3000 nodes; smaller ones keep 4 GiB, since a database " +
		"of its size goes through the network when a member is replaced. Source: kops' scalability tests, tests/e2e/scenarios/scalability/run-test.sh, ETCD_QUOTA_BACKEND_BYTES=8589934592; " +
		"etcd's operations guide, \"System limits\".",
}

// unscaled are why a flag that other guides set by a cluster's size is left alone, with the source.
var unscaled = map[string]string{
	apiServer + " watch-cache-sizes": "Does not follow from the cluster's size: an API server gives each of its caches the size that its changes need. " +
		"Source: kube-apiserver's own help, \"The only meaningful size setting to supply here is zero\".",
}

const requestsReason = "At its limit an API server answers 429, to nodes too. Priority and fairness divides the sum of this limit and of the writes' among its levels. " +
	"Source: Kubernetes' own large clusters, cluster/gce/gci/configure-kubeapiserver.sh: 1500 and 500 above 500 nodes, 3000 and 1000 above 3000."

const clientReason = "Each controller's own limit of requests in a second: with 20 a thousand nodes wait a minute for their addresses, and another one until they may have pods. " +
	"Source: Kubernetes' scalability tests, config/jobs/kubernetes/sig-scalability/sig-scalability-presets.yaml of test-infra, CONTROLLER_MANAGER_TEST_ARGS: 100 and 100; kops' tests give 500."

const schedulerReason = "A pod takes one request to be bound: with 50 in a second five thousand pods take 100 s. " +
	"Source: Kubernetes' scalability tests, config/jobs/kubernetes/sig-scalability/sig-scalability-presets.yaml of test-infra, SCHEDULER_TEST_ARGS: 100; kops' tests give 500."

// whyScaled is the reason of a flag or a field that follows, or does not follow, from the size of the groups.
func whyScaled(component, name string, o Origin) string {
	if o.Kind == Derived {
		return scaleReasons[component+" "+name]
	}
	return unscaled[component+" "+name]
}

// bySize are the flags that follow from how many machines the groups may have.
func (f *completer) bySize() []derivation {
	var derived []derivation
	add := func(component, flag, value string) {
		derived = append(derived, derivation{component, flag, value, "groups", false})
	}
	masters := 0
	for _, g := range f.out.Groups {
		if g.Roles.Has(role.Masters) {
			masters += max(g.Size, g.AWS.Max)
		}
	}
	if masters > 1 {
		add(apiServer, goawayFlag, "0.001")
	}
	nodes := f.mostNodes()
	if nodes <= largeNodes {
		return derived
	}
	add(manager, qpsFlag, "100")
	add(manager, burstFlag, "100")
	if nodes <= veryLargeNodes {
		add(apiServer, readsFlag, "1500")
		add(apiServer, mutatingFlag, "500")
		return derived
	}
	add(apiServer, readsFlag, "3000")
	add(apiServer, mutatingFlag, "1000")
	add("etcd", quotaFlag, largeQuota)
	return derived
}

// documentBySize has the fields of a component's document that follow from how many machines the groups may have; the number of DNS
// pods from how many they begin with, since an autoscaler would start machines for pods that find no node.
func (f *completer) documentBySize(component string) map[string]any {
	switch replicas := (f.firstNodes() + dnsNodes - 1) / dnsNodes; {
	case component == scheduler && f.mostNodes() > largeNodes:
		return map[string]any{"clientConnection": map[string]any{"qps": 100}}
	case component == clusterDNS && replicas > leastDNS:
		return map[string]any{"Deployment": map[string]any{"spec": map[string]any{"replicas": replicas}}}
	}
	return nil
}

// volumeBySize is the default size of a member's volume in GiB, and where it comes from.
func (f *completer) volumeBySize() (int, Origin) {
	if f.mostNodes() > veryLargeNodes {
		return largeEtcdVolume, Origin{Derived, "groups"}
	}
	return defaultEtcdVolume, byHardtack
}
