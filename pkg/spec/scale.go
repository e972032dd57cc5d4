package spec

import "github.com/hardtack/packer-plugin-hardtack/pkg/role"

// goawayFlag and the flags of requests depend on how large the cluster may become.
const (
	goawayFlag   = "goaway-chance"
	readsFlag    = "max-requests-inflight"
	mutatingFlag = "max-mutating-requests-inflight"
	apiServer    = "kubeAPIServer"
)

// scaleReasons are why a flag of the API server follows from the size of the groups, with the source.
var scaleReasons = map[string]string{
	goawayFlag: "A client keeps its connection for as long as it works, so that a master that comes back gets none of them: one request in a thousand " +
		"ends its connection, and the client looks for a master again. Source: kube-apiserver's own help, which recommends to begin with .001, and not for a single API server.",
	readsFlag: requestsReason, mutatingFlag: requestsReason,
}

const requestsReason = "At its limit an API server answers 429, to nodes too. Priority and fairness divides the sum of this limit and of the writes' among its levels. " +
	"Source: Kubernetes' own large clusters, cluster/gce/gci/configure-kubeapiserver.sh: 1500 and 500 above 500 nodes, 3000 and 1000 above 3000."

// bySize are the flags that follow from how many machines the groups may have.
func (f *completer) bySize() []derivation {
	var derived []derivation
	masters := 0
	for _, g := range f.out.Groups {
		if g.Roles.Has(role.Masters) {
			masters += max(g.Size, g.AWS.Max)
		}
	}
	if masters > 1 {
		derived = append(derived, derivation{apiServer, goawayFlag, "0.001", "groups", false})
	}
	reads, mutating := "", ""
	switch nodes := f.mostNodes(); {
	case nodes > 3000:
		reads, mutating = "3000", "1000"
	case nodes > 500:
		reads, mutating = "1500", "500"
	default:
		return derived
	}
	return append(derived, derivation{apiServer, readsFlag, reads, "groups", false}, derivation{apiServer, mutatingFlag, mutating, "groups", false})
}
