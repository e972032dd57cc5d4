package examine_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/hardtack/packer-plugin-hardtack/pkg/cluster/examine"
	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/doctor"
)

// lists answers a path with the items of its kind; a kind without any has an empty list. One that is "no" cannot be read.
type lists map[string]string

func (l lists) Read(_ context.Context, path string, value any) error {
	items := l[path[strings.LastIndexByte(path, '/')+1:]]
	if items == "no" {
		return errors.New("403 Forbidden")
	}
	return json.Unmarshal([]byte(`{"items":[`+items+`]}`), value)
}

var now = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

// old and young are metadata of objects that have waited for too long, and that have not.
func old(name string) string { return meta(name, "2026-05-01T11:00:00Z") }

func young(name string) string { return meta(name, "2026-05-01T11:59:00Z") }

func meta(name, created string) string {
	return fmt.Sprintf(`"metadata":{"name":%q,"namespace":"shop","creationTimestamp":%q}`, name, created)
}

const (
	healthyNode = `{"metadata":{"name":"a"},"status":{"conditions":[{"type":"Ready","status":"True"},{"type":"DiskPressure","status":"False"}]}}`
	coreDNS     = `{"metadata":{"name":"kube-dns-x","namespace":"kube-system","labels":{"kubernetes.io/service-name":"kube-dns"}},"endpoints":[{"conditions":{"ready":false}},{"conditions":{"ready":true}}]}`
	hookReady   = `{"metadata":{"name":"hook-x","namespace":"shop","labels":{"kubernetes.io/service-name":"hook"}},"endpoints":[{"conditions":{}}]}`
	hookService = `{"metadata":{"name":"hook","namespace":"shop"},"spec":{"type":"ClusterIP"}}`
)

func hooks(policy string) string {
	return `{"metadata":{"name":"w"},"webhooks":[{"name":"w.shop.io","clientConfig":{"service":{"namespace":"shop","name":"hook"}},"failurePolicy":"` + policy + `","timeoutSeconds":7}]}`
}

// TestRun has a row for each thing that is wrong, and beside it what looks like it and is not.
func TestRun(t *testing.T) {
	for _, test := range []struct {
		name  string
		has   lists
		check string
		state doctor.State
		says  []string
	}{
		{"all is well", nil, "nodes", doctor.OK, []string{"1 of 1 are ready"}},
		{"no node", lists{"nodes": ""}, "nodes", doctor.Error, []string{"no machine has joined"}},
		{"a node is silent", lists{"nodes": healthyNode + `,{"metadata":{"name":"b"},"status":{"conditions":[{"type":"Ready","status":"Unknown","message":"Kubelet stopped posting node status.","lastTransitionTime":"2026-05-01T11:40:00Z"}]}}`},
			"nodes", doctor.Error, []string{"b has said nothing since 2026-05-01T11:40:00Z"}},
		{"a node is not ready", lists{"nodes": `{"metadata":{"name":"b"},"status":{"conditions":[{"type":"Ready","status":"False","reason":"KubeletNotReady","message":"cni plugin not initialized"}]}}`},
			"nodes", doctor.Error, []string{"b is not ready: KubeletNotReady: cni plugin not initialized", "query=kubelet"}},
		{"a node's disk is full", lists{"nodes": `{"metadata":{"name":"b"},"status":{"conditions":[{"type":"Ready","status":"True"},{"type":"DiskPressure","status":"True","message":"kubelet has disk pressure"}]}}`},
			"nodes", doctor.Warning, []string{"b: DiskPressure"}},
		{"no node takes a pod", lists{"pods": `{` + old("big") + `,"status":{"phase":"Pending","conditions":[{"type":"PodScheduled","status":"False","message":"0/1 nodes are available: 1 Insufficient cpu."}]}}`},
			"pods", doctor.Warning, []string{"no node takes shop/big: 0/1 nodes"}},
		{"a pod that is new", lists{"pods": `{` + young("big") + `,"status":{"phase":"Pending","conditions":[{"type":"PodScheduled","status":"False"}]}}`}, "pods", doctor.OK, nil},
		{"no DNS", lists{"endpointslices": strings.ReplaceAll(coreDNS, "true", "false")}, "dns", doctor.Error, []string{"no CoreDNS answers"}},
		{"no metrics, and nobody asks", nil, "metrics", doctor.OK, []string{"kubectl top", "addons: [metrics-server]"}},
		{"no metrics, and somebody asks", lists{"horizontalpodautoscalers": `{` + young("web") + `}`}, "metrics", doctor.Error, []string{"wait for it: shop/web", "addons: [metrics-server]"}},
		{"metrics", lists{"apiservices": `{"metadata":{"name":"v1beta1.metrics.k8s.io"},"spec":{"service":{"namespace":"kube-system","name":"metrics-server"}},"status":{"conditions":[{"type":"Available","status":"True"}]}}`,
			"horizontalpodautoscalers": `{` + young("web") + `}`}, "metrics", doctor.OK, nil},
		{"an API without a pod", lists{"apiservices": `{"metadata":{"name":"v1.hello.io"},"spec":{"service":{"namespace":"shop","name":"hello"}},"status":{"conditions":[{"type":"Available","status":"False","reason":"MissingEndpoints","message":"no addresses"}]}}`},
			"apis", doctor.Error, []string{"v1.hello.io gets 503, Service shop/hello: MissingEndpoints"}},
		{"an API of the API server's own", lists{"apiservices": `{"metadata":{"name":"v1.apps"},"spec":{}}`}, "apis", doctor.OK, nil},
		{"a webhook without a Service", lists{"mutatingwebhookconfigurations": hooks("Fail")}, "webhooks", doctor.Error, []string{"shop/hook does not exist", "is refused", "7 s", "kubectl delete mutatingwebhookconfiguration w"}},
		{"a webhook without a pod", lists{"validatingwebhookconfigurations": hooks("Fail"), "services": hookService}, "webhooks", doctor.Error, []string{"shop/hook has no pod that is ready"}},
		{"a webhook that may fail", lists{"validatingwebhookconfigurations": hooks("Ignore"), "services": hookService}, "webhooks", doctor.Warning, []string{"let pass unseen"}},
		{"a webhook with a pod", lists{"validatingwebhookconfigurations": hooks("Fail"), "services": hookService, "endpointslices": coreDNS + "," + hookReady}, "webhooks", doctor.OK, nil},
		{"a load balancer that nobody makes", lists{"services": `{` + old("web") + `,"spec":{"type":"LoadBalancer"}}`}, "loadbalancers", doctor.Error, []string{"shop/web", "no cloud controller"}},
		{"a load balancer that somebody made", lists{"services": `{` + old("web") + `,"spec":{"type":"LoadBalancer"},"status":{"loadBalancer":{"ingress":[{"ip":"192.0.2.1"}]}}}`}, "loadbalancers", doctor.OK, nil},
		{"a volume without a default class", lists{"persistentvolumeclaims": `{` + old("data") + `,"spec":{},"status":{"phase":"Pending"}}`}, "volumes", doctor.Error, []string{"shop/data: no StorageClass is the default"}},
		{"a volume of an unknown class", lists{"persistentvolumeclaims": `{` + old("data") + `,"spec":{"storageClassName":"fast"},"status":{"phase":"Pending"}}`}, "volumes", doctor.Error, []string{"there is no StorageClass fast"}},
		{"a volume of a driver that is not there", lists{"persistentvolumeclaims": `{` + old("data") + `,"spec":{},"status":{"phase":"Pending"}}`,
			"storageclasses": `{"metadata":{"name":"gp3","annotations":{"storageclass.kubernetes.io/is-default-class":"true"}},"provisioner":"ebs.csi.aws.com"}`}, "volumes", doctor.Error, []string{"ebs.csi.aws.com, which is not installed"}},
		{"a volume that waits for its pod", lists{"persistentvolumeclaims": `{` + old("data") + `,"spec":{"storageClassName":"gp3"},"status":{"phase":"Pending"}}`,
			"storageclasses": `{"metadata":{"name":"gp3"},"provisioner":"ebs.csi.aws.com"}`, "csidrivers": `{"metadata":{"name":"ebs.csi.aws.com"}}`}, "volumes", doctor.OK, nil},
		{"a volume that a person makes", lists{"persistentvolumeclaims": `{` + old("data") + `,"spec":{"storageClassName":""},"status":{"phase":"Pending"}}`}, "volumes", doctor.OK, nil},
		{"an ingress without a controller", lists{"ingresses": `{` + old("front") + `,"spec":{"ingressClassName":"nginx"}}`}, "ingresses", doctor.Error, []string{"no controller takes shop/front"}},
		{"an ingress with one", lists{"ingresses": `{` + old("front") + `,"spec":{"ingressClassName":"nginx"}}`, "ingressclasses": `{"metadata":{"name":"nginx"}}`}, "ingresses", doctor.OK, nil},
		{"a policy that nobody enforces", lists{"networkpolicies": `{` + young("deny") + `}`}, "networkpolicies", doctor.Warning, []string{"nothing enforces shop/deny"}},
		{"a certificate that nobody signs", lists{"certificatesigningrequests": `{"metadata":{"name":"csr-1","creationTimestamp":"2026-05-01T11:00:00Z"},"spec":{"signerName":"kubernetes.io/kubelet-serving","username":"system:node:b"}}`},
			"certificates", doctor.Warning, []string{"csr-1 of system:node:b"}},
		{"a list that cannot be read", lists{"services": "no"}, "webhooks", doctor.Error, []string{"not known: reading services: 403"}},
		{"and the others go on", lists{"services": "no"}, "dns", doctor.OK, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			all := lists{"nodes": healthyNode, "endpointslices": coreDNS}
			for kind, items := range test.has {
				all[kind] = items
			}
			var found []doctor.Check
			for _, c := range examine.Run(t.Context(), all, now) {
				if c.Name == test.check && c.State == test.state {
					found = append(found, c)
				} else if c.Name == test.check && c.State != doctor.OK {
					t.Errorf("%s: %s", c.State, c.Text)
				}
			}
			assert.Assert(t, len(found) == 1, "%v", found)
			for _, words := range test.says {
				assert.Assert(t, strings.Contains(found[0].Text+" next: "+found[0].Next, words), "%+v", found[0])
			}
		})
	}
}

type silent struct{}

func (silent) Read(context.Context, string, any) error { return errors.New("connection refused") }

// TestRunWithoutAPI: one check says it, and not eleven.
func TestRunWithoutAPI(t *testing.T) {
	checks := examine.Run(t.Context(), silent{}, now)
	assert.Assert(t, len(checks) == 1 && checks[0].State == doctor.Error && strings.Contains(checks[0].Text, "connection refused"), "%v", checks)
	assert.ErrorContains(t, checks.Err(), "1 of 1 checks failed")
}
