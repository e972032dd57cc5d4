package spec

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// taken are ranges that no pod and no Service can have, with the reason.
var taken = []struct {
	netip.Prefix
	what string
}{
	{netip.MustParsePrefix("0.0.0.0/8"), "this network"},
	{netip.MustParsePrefix("127.0.0.0/8"), "each machine's own addresses"},
	{netip.MustParsePrefix("169.254.0.0/16"), "link-local addresses, with the metadata service and the clock at AWS"},
	{netip.MustParsePrefix("224.0.0.0/4"), "multicast"},
	{netip.MustParsePrefix("240.0.0.0/4"), "reserved"},
}

// free reports a range that machines need for something else.
func (v checker) free(field string, p netip.Prefix) {
	for _, t := range taken {
		if t.Overlaps(p) {
			v.hint(field, "a private range, as in 10.0.0.0/8", "%s overlaps %s: %s", p, t.Prefix, t.what)
		}
	}
}

// stubPort is systemd-resolved's, on 127.0.0.53.
const stubPort = 53

// possible finds what each value allows by itself, and no machine can do.
func (f *completer) possible() {
	f.apiPort()
	f.cloudProviders()
	f.cloudWaits()
	f.followers()
	f.listeners()
	for i, g := range f.out.Cluster.Groups {
		if n := len(g.Members); n > 0 && n%2 == 0 && len(f.members()) == n {
			f.warn(at("groups", i)+".members", fmt.Sprintf("name %d or %d", n-1, n+1),
				"an etcd of %d members works without %d of them, as one of %d does", n, (n-1)/2, n-1)
		}
	}
}

// apiPort finds another program of the masters' machines on the API server's port.
func (f *completer) apiPort() {
	port := f.out.Cluster.API.Port
	program := ""
	if port == stubPort {
		program = "systemd-resolved"
	}
	for _, g := range f.out.Groups {
		if !g.Roles.Has(role.Masters) {
			continue
		}
		for _, r := range g.Roles {
			for _, p := range r.Ports() {
				if p.Number == port && p.Protocol == "tcp" && p.Program != "kube-apiserver" {
					program = p.Program
				}
			}
		}
	}
	if program != "" {
		f.hint("api.port", "write another, such as 6443", "%d is the port of %s on the same machine", port, program)
	}
}

// cloudProviders finds cloud providers that Kubernetes no longer has: with them the program ends.
func (f *completer) cloudProviders() {
	for _, p := range f.out.components {
		if fl, ok := p.flags["cloud-provider"]; ok && p.name != "kubeAPIServer" {
			if value := fl.text(); value != "" && value != "external" {
				f.hint(join(p.name+".flags", "cloud-provider"), "leave it out, or write external and run the cloud's own controller manager",
					"%s has no cloud provider %q any more", f.upstream.program(p.component), value)
			}
		}
	}
}

// followers finds flags and fields that follow from api or network, and were set to something else beside it: daemons would
// go by different values. Most of these a machine compares with what the cluster agreed on, and does not start.
func (f *completer) followers() {
	for _, d := range f.derivedFlags() {
		if field := join(d.component+".flags", d.name); shared(d) && f.out.Origins[field].Kind == User {
			f.follower(field, d)
		}
	}
	for _, d := range f.derivedFields() {
		field := join(d.component+".config", d.name)
		if !shared(d) || f.out.Origins[field].Kind != User {
			continue
		}
		// More name servers after the cluster's are the kubelet's matter.
		i := slices.IndexFunc(f.out.components, func(p resolved) bool { return p.name == d.component })
		if have, ok := f.out.components[i].document.value[d.name].([]any); ok && len(have) > 0 && have[0] == d.value.([]any)[0] {
			continue
		}
		f.follower(field, d)
	}
}

// shared reports whether the value is one that all machines of the cluster agree on.
func shared(d derivation) bool { return d.from == "api.port" || strings.HasPrefix(d.from, "network.") }

func (f *completer) follower(field string, d derivation) {
	f.hint(field, "leave it out, and set "+d.from, "follows from %s, on which all machines of the cluster have to agree", d.from)
}
