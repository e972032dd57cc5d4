package examine

import (
	"fmt"
	"slices"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/doctor"
)

func (x *examination) ofNodes(name string) {
	if len(x.nodes.Items) == 0 {
		x.add(name, doctor.Error, "look at the minions' user data: hardtack-agent says on the console why a machine does not join", "no machine has joined")
		return
	}
	ready := 0
	for _, n := range x.nodes.Items {
		switch c := n.Status.of("Ready"); {
		case c.Status == "True":
			ready++
		case c.Status == "Unknown" && !c.Changed.IsZero():
			x.add(name, doctor.Error, "look at the machine and its console: it may be gone, or cut off", "%s has said nothing since %s: %s",
				n.name(), c.Changed.Format(time.RFC3339), c.Message)
		default:
			x.add(name, doctor.Error, fmt.Sprintf("read its kubelet's journal: kubectl get --raw '/api/v1/nodes/%s/proxy/logs/?query=kubelet&tailLines=50'", n.name()),
				"%s is not ready: %s: %s", n.name(), c.Reason, c.Message)
		}
		for _, pressure := range []string{"MemoryPressure", "DiskPressure", "PIDPressure"} {
			if c := n.Status.of(pressure); c.Status == "True" {
				x.add(name, doctor.Warning, "see what its pods take: kubectl describe node "+n.name(), "%s: %s: %s", n.name(), pressure, c.Message)
			}
		}
	}
	if ready == len(x.nodes.Items) {
		x.add(name, doctor.OK, "", "%d of %[1]d are ready", ready)
	}
}

// ofPods: pods that no node takes, each with the scheduler's own words.
func (x *examination) ofPods(name string) {
	stuck := map[string][]pod{}
	for _, p := range x.pods.Items {
		if c := p.Status.of("PodScheduled"); p.Status.Phase == "Pending" && c.Status == "False" && x.waits(p.object) {
			stuck[c.Message] = append(stuck[c.Message], p)
		}
	}
	for _, why := range sorted(stuck) {
		x.add(name, doctor.Warning, "give the pods what they ask for, or the minions' group a larger size", "no node takes %s: %s", names(stuck[why]), why)
	}
}

func (x *examination) ofDNS(name string) {
	if !x.ready(serviceRef{"kube-system", "kube-dns"}) {
		x.add(name, doctor.Error, "see why CoreDNS does not run: kubectl -n kube-system describe pods -l k8s-app=kube-dns", "no CoreDNS answers: pods find no name")
	}
}

// metricsAPI is what kubectl top and HorizontalPodAutoscalers ask.
const metricsAPI = "v1beta1.metrics.k8s.io"

func (x *examination) ofMetrics(name string) {
	if slices.ContainsFunc(x.apis.Items, func(a apiService) bool { return a.name() == metricsAPI }) {
		return // that it answers is a check of all such APIs
	}
	const next = "name it in the cluster's document: addons: [metrics-server], and give the masters their new user data"
	if all := x.autoscalers.Items; len(all) > 0 {
		x.add(name, doctor.Error, next, "nothing serves metrics.k8s.io, and HorizontalPodAutoscalers wait for it: %s", names(all))
		return
	}
	x.add(name, doctor.OK, "to have it, "+next, "nothing serves metrics.k8s.io: kubectl top gets \"Metrics API not available\"")
}

func (x *examination) ofAPIs(name string) {
	for _, a := range x.apis.Items {
		if c := a.Status.of("Available"); a.Spec.Service != nil && c.Status != "True" {
			x.add(name, doctor.Error, fmt.Sprintf("have the pods of that Service run, or take the API away: kubectl delete apiservice %s", a.name()),
				"%s gets 503, Service %s: %s: %s", a.name(), a.Spec.Service, c.Reason, c.Message)
		}
	}
}

func (x *examination) ofWebhooks(name string) {
	for _, of := range []struct {
		kind string
		all  []webhooks
	}{{"mutatingwebhookconfiguration", x.mutating.Items}, {"validatingwebhookconfiguration", x.validating.Items}} {
		for _, w := range of.all {
			for _, hook := range w.Webhooks {
				to := hook.Client.Service
				if to == nil || x.ready(*to) {
					continue
				}
				why := "has no pod that is ready"
				if !slices.ContainsFunc(x.services.Items, func(s service) bool { return s.name() == to.String() }) {
					why = "does not exist"
				}
				state, result := doctor.Error, "refused"
				if hook.Policy == "Ignore" {
					state, result = doctor.Warning, "let pass unseen"
				}
				x.add(name, state, fmt.Sprintf("have that pod run, or take the webhook away: kubectl delete %s %s", of.kind, w.name()),
					"%s: Service %s %s: what it would look at is %s, after up to %d s each", hook.Name, to, why, result, hook.Timeout)
			}
		}
	}
}

func (x *examination) ofLoadBalancers(name string) {
	var stuck []service
	for _, s := range x.services.Items {
		if s.Spec.Type == "LoadBalancer" && len(s.Status.LoadBalancer.Ingress) == 0 && x.waits(s.object) {
			stuck = append(stuck, s)
		}
	}
	if len(stuck) > 0 {
		x.add(name, doctor.Error, "install a controller that makes load balancers, or take type: NodePort behind a load balancer of your own",
			"no load balancer was made for %s: Hardtack ships no cloud controller", names(stuck))
	}
}

func (x *examination) ofVolumes(name string) {
	why := map[string][]claim{}
	for _, c := range x.claims.Items {
		if c.Status.Phase != "Pending" || !x.waits(c.object) {
			continue
		}
		if reason := x.unprovisioned(c); reason != "" {
			why[reason] = append(why[reason], c)
		}
	}
	for _, reason := range sorted(why) {
		x.add(name, doctor.Error, "install a CSI driver with its StorageClass, such as that of EBS, or make a PersistentVolume by hand", "%s: %s", names(why[reason]), reason)
	}
}

// unprovisioned is why nothing makes a claim's volume. Empty means that somebody may: a claim can also wait for its first pod.
func (x *examination) unprovisioned(c claim) string {
	i := slices.IndexFunc(x.classes.Items, func(s storageClass) bool {
		if c.Spec.Class == nil {
			return s.Metadata.Annotations["storageclass.kubernetes.io/is-default-class"] == "true"
		}
		return s.name() == *c.Spec.Class
	})
	switch {
	case c.Spec.Class != nil && *c.Spec.Class == "":
		return "" // it asks for a volume that a person makes
	case i < 0 && c.Spec.Class == nil:
		return "no StorageClass is the default"
	case i < 0:
		return "there is no StorageClass " + *c.Spec.Class
	}
	by := x.classes.Items[i].Provisioner
	if by == "kubernetes.io/no-provisioner" || slices.ContainsFunc(x.drivers.Items, func(o object) bool { return o.name() == by }) {
		return ""
	}
	return fmt.Sprintf("StorageClass %s is of the driver %s, which is not installed", x.classes.Items[i].name(), by)
}

func (x *examination) ofIngresses(name string) {
	var stuck []ingress
	for _, i := range x.ingresses.Items {
		known := slices.ContainsFunc(x.ingressClasses.Items, func(o object) bool { return o.name() == i.Spec.Class })
		if !known && len(i.Status.LoadBalancer.Ingress) == 0 && x.waits(i.object) {
			stuck = append(stuck, i)
		}
	}
	if len(stuck) > 0 {
		x.add(name, doctor.Error, "install an ingress controller, and name its class in spec.ingressClassName", "no controller takes %s: there is no IngressClass of their name", names(stuck))
	}
}

func (x *examination) ofNetworkPolicies(name string) {
	if all := x.policies.Items; len(all) > 0 {
		x.add(name, doctor.Warning, "install a controller of NetworkPolicies that works beside flannel", "nothing enforces %s: flannel carries every packet", names(all))
	}
}

func (x *examination) ofCertificates(name string) {
	for _, r := range x.requests.Items {
		if len(r.Status.Certificate) == 0 && len(r.Status.Conditions) == 0 && x.waits(r.object) {
			x.add(name, doctor.Warning, "see what hardtack-controller says of it on the masters: journalctl -u hardtack-controller",
				"%s of %s waits for the signer %s", r.name(), r.Spec.User, r.Spec.Signer)
		}
	}
}

// ready reports whether a Service has an endpoint that is ready.
func (x *examination) ready(to serviceRef) bool {
	for _, s := range x.slices.Items {
		if s.Metadata.Namespace != to.Namespace || s.Metadata.Labels["kubernetes.io/service-name"] != to.Name {
			continue
		}
		for _, e := range s.Endpoints {
			if e.Conditions.Ready == nil || *e.Conditions.Ready {
				return true
			}
		}
	}
	return false
}

func sorted[T any](of map[string]T) (keys []string) {
	for k := range of {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
