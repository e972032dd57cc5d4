// Package examine asks a running cluster's API server for what waits without a word: nodes that are not ready, and requests that
// need a component which is not there.
//
// Its rule: it reads, and changes nothing. Every list that it needs is a path that it asks a Reader for, and a list that cannot be
// read is a check that failed, and does not end the others.
package examine

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/doctor"
)

// Patience is how long an object may wait before it is called stuck: what comes up with a new node takes minutes.
const Patience = 5 * time.Minute

// Reader reads the JSON of a path of the API server into a value.
type Reader interface {
	Read(ctx context.Context, path string, value any) error
}

// Run makes all checks, of objects as old as they are at now.
func Run(ctx context.Context, r Reader, now time.Time) doctor.List {
	x := &examination{now: now}
	x.read(ctx, r)
	if x.unread["nodes"] != nil && len(x.unread) == len(x.lists()) {
		return doctor.List{{Name: "api", State: doctor.Error, Text: "the API server does not answer: " + x.unread["nodes"].Error(),
			Next: "look at the masters: hardtack stack status, or hardtack lab status; and at the address in the kubeconfig"}}
	}
	for _, check := range []struct {
		name string
		// of are the lists that the check needs.
		of []string
		do func(name string)
	}{
		{"nodes", []string{"nodes"}, x.ofNodes},
		{"pods", []string{"pods"}, x.ofPods},
		{"dns", []string{"endpointslices"}, x.ofDNS},
		{"metrics", []string{"apiservices", "horizontalpodautoscalers"}, x.ofMetrics},
		{"apis", []string{"apiservices"}, x.ofAPIs},
		{"webhooks", []string{"validatingwebhookconfigurations", "mutatingwebhookconfigurations", "services", "endpointslices"}, x.ofWebhooks},
		{"loadbalancers", []string{"services"}, x.ofLoadBalancers},
		{"volumes", []string{"persistentvolumeclaims", "storageclasses", "csidrivers"}, x.ofVolumes},
		{"ingresses", []string{"ingresses", "ingressclasses"}, x.ofIngresses},
		{"networkpolicies", []string{"networkpolicies"}, x.ofNetworkPolicies},
		{"certificates", []string{"certificatesigningrequests"}, x.ofCertificates},
	} {
		i := slices.IndexFunc(check.of, func(list string) bool { return x.unread[list] != nil })
		if i >= 0 {
			x.add(check.name, doctor.Error, "take an administrator's kubeconfig: hardtack pki kubeconfig", "not known: reading %s: %v", check.of[i], x.unread[check.of[i]])
			continue
		}
		before := len(x.checks)
		check.do(check.name)
		if len(x.checks) == before {
			x.add(check.name, doctor.OK, "", "nothing waits")
		}
	}
	return x.checks
}

// examination is what was read, and what was found in it.
type examination struct {
	now    time.Time
	unread map[string]error
	checks doctor.List

	nodes                list[node]
	pods                 list[pod]
	services             list[service]
	slices               list[endpointSlice]
	apis                 list[apiService]
	autoscalers          list[object]
	validating, mutating list[webhooks]
	claims               list[claim]
	classes              list[storageClass]
	drivers              list[object]
	ingresses            list[ingress]
	ingressClasses       list[object]
	policies             list[object]
	requests             list[signingRequest]
}

// lists are the paths of what is read.
func (x *examination) lists() map[string]any {
	return map[string]any{
		"/api/v1/nodes": &x.nodes, "/api/v1/pods": &x.pods, "/api/v1/services": &x.services, "/api/v1/persistentvolumeclaims": &x.claims,
		"/apis/discovery.k8s.io/v1/endpointslices":                              &x.slices,
		"/apis/apiregistration.k8s.io/v1/apiservices":                           &x.apis,
		"/apis/autoscaling/v2/horizontalpodautoscalers":                         &x.autoscalers,
		"/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations": &x.validating,
		"/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations":   &x.mutating,
		"/apis/storage.k8s.io/v1/storageclasses":                                &x.classes,
		"/apis/storage.k8s.io/v1/csidrivers":                                    &x.drivers,
		"/apis/networking.k8s.io/v1/ingresses":                                  &x.ingresses,
		"/apis/networking.k8s.io/v1/ingressclasses":                             &x.ingressClasses,
		"/apis/networking.k8s.io/v1/networkpolicies":                            &x.policies,
		"/apis/certificates.k8s.io/v1/certificatesigningrequests":               &x.requests,
	}
}

func (x *examination) read(ctx context.Context, r Reader) {
	x.unread = map[string]error{}
	for path, into := range x.lists() {
		if err := r.Read(ctx, path, into); err != nil {
			x.unread[path[strings.LastIndexByte(path, '/')+1:]] = err
		}
	}
}

func (x *examination) add(name string, state doctor.State, next, format string, args ...any) {
	x.checks = append(x.checks, doctor.Check{Name: name, State: state, Text: fmt.Sprintf(format, args...), Next: next})
}

// waits reports whether an object is older than Patience.
func (x *examination) waits(o object) bool { return x.now.Sub(o.Metadata.Created) > Patience }

// most is how many objects of one kind are named, before the rest are counted.
const most = 5

// names are the names of objects, the first of them if there are many.
func names[T interface{ name() string }](all []T) string {
	var list []string
	for _, o := range all {
		list = append(list, o.name())
	}
	slices.Sort(list)
	if n := len(list); n > most {
		return strings.Join(list[:most], ", ") + fmt.Sprintf(" and %d more", n-most)
	}
	return strings.Join(list, ", ")
}
