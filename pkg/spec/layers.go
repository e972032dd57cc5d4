package spec

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// part is one component with everything decided.
type part struct {
	field   string
	program program
	// flags are all flags by name.
	flags map[string]flag
	// document is the configuration document, nil for a component that has none.
	document *document
}

// flag is one flag with its value. ${CLUSTER_NAME} is filled in, ${MEMBER} is each machine's own.
type flag struct {
	// values is one, but for a flag that is given once for each.
	values []string
	origin Origin
	// upstream is what the program says of it.
	upstream UpstreamFlag
	// bare is what a machine with a bare role file runs the program with, nil for nothing.
	bare *baked
}

// is reports whether the flag has just these values.
func (f flag) is(values []string) bool { return slices.Equal(f.values, values) }

// derivation is a flag or a field of a document that follows from the cluster.
type derivation struct {
	component, name string
	value           any
	from            string
}

// parameters of values: what stands for the cluster's name, and for the name of the machine's member.
const (
	clusterParameter = "${CLUSTER_NAME}"
	memberParameter  = "${MEMBER}"
)

// derivedFlags are the flags that follow from the cluster.
func (f *completer) derivedFlags() []derivation {
	c := f.out.Cluster
	derived := []derivation{
		{"kubeAPIServer", "service-cluster-ip-range", c.Network.ServiceCIDR, "network.serviceCIDR"},
		{"kubeControllerManager", "service-cluster-ip-range", c.Network.ServiceCIDR, "network.serviceCIDR"},
		{"kubeControllerManager", "cluster-cidr", c.Network.PodCIDR, "network.podCIDR"},
		{"kubeAPIServer", "secure-port", fmt.Sprint(c.API.Port), "api.port"},
	}
	members := f.members()
	if len(members) == 0 {
		return derived
	}
	var clients, peers []string
	for _, m := range members {
		host := fmt.Sprintf("https://%s-%s.%s", role.Etcd, m, c.Domain())
		clients = append(clients, host+":2379")
		peers = append(peers, m+"="+host+":2380")
	}
	own := fmt.Sprintf("https://%s-%s.%s", role.Etcd, memberParameter, c.Domain())
	const from = "groups"
	return append(derived,
		derivation{"kubeAPIServer", "etcd-servers", strings.Join(clients, ","), from},
		derivation{"etcd", "name", memberParameter, from},
		derivation{"etcd", "listen-client-urls", "https://0.0.0.0:2379", from},
		derivation{"etcd", "listen-peer-urls", "https://0.0.0.0:2380", from},
		derivation{"etcd", "advertise-client-urls", own + ":2379", from},
		derivation{"etcd", "initial-advertise-peer-urls", own + ":2380", from},
		derivation{"etcd", "initial-cluster", strings.Join(peers, ","), from},
		derivation{"etcd", "initial-cluster-token", c.Name, "name"},
	)
}

// members are the names of etcd's members, none for the one beside its API server.
func (f *completer) members() []string {
	if len(f.out.Groups) == 0 {
		return nil
	}
	return f.out.Groups[0].Members
}

// component returns the overrides of a component by its name in a document.
func (c *Components) component(field string) *Component {
	return map[string]*Component{
		"kubeAPIServer": &c.KubeAPIServer, "kubeControllerManager": &c.KubeControllerManager,
		"kubeScheduler": &c.KubeScheduler, "kubeProxy": &c.KubeProxy, "kubelet": &c.Kubelet, "etcd": &c.Etcd,
		"containerd": &c.Containerd, "flannel": &c.Flannel, "coreDNS": &c.CoreDNS,
	}[field]
}

// componentNames are the components in the order of a document.
var componentNames = []string{
	"kubeAPIServer", "kubeControllerManager", "kubeScheduler", "kubeProxy", "kubelet", "etcd", "containerd", "flannel", "coreDNS",
}

// components lays the layers of each component over each other: upstream, image, cluster, user.
func (f *completer) components() {
	derived := f.derivedFlags()
	for _, field := range componentNames {
		p := part{field: field, program: f.image.programs[field], flags: map[string]flag{}}
		given := f.in.component(field)
		f.flags(&p, given.Flags, derived)
		f.document(&p, given.Config)
		f.gates(&p, given)
		out := f.out.Cluster.component(field)
		out.Flags = map[string]any{}
		for name, fl := range p.flags {
			out.Flags[name] = fl.plain()
			f.out.Origins[join(field+".flags", name)] = fl.origin
		}
		f.out.parts = append(f.out.parts, p)
	}
}

// flags decides a component's flags.
func (f *completer) flags(p *part, given map[string]any, derived []derivation) {
	known := f.upstream.Flags[p.field]
	upstream := Origin{Default, f.upstream.from(p.field)}
	for name, u := range known {
		if u.Note == noteDocument || u.Note == noteIgnored {
			continue // the document decides
		}
		p.flags[name] = flag{values: u.values(u.Default), origin: upstream, upstream: u}
	}
	for name, b := range p.program.flags {
		u, ok := known[name]
		if !ok {
			f.errorf(p.field, "the image's %s gives --%s, which %s does not have", b.from, name, f.upstream.from(p.field))
			continue
		}
		fl := flag{values: u.values(u.Default), origin: upstream, upstream: u, bare: &b}
		if b.set {
			b.value = strings.ReplaceAll(b.value, clusterParameter, f.out.Cluster.Name)
			f.decide(&fl, u.values(b.value), Origin{Default, b.from})
		}
		p.flags[name] = fl
	}
	for _, d := range derived {
		if d.component == p.field {
			fl := p.flags[d.name]
			// Also where the image happens to say the same: it would follow.
			fl.values, fl.origin = fl.upstream.values(d.value.(string)), Origin{Derived, d.from}
			p.flags[d.name] = fl
		}
	}
	for _, name := range slices.Sorted(maps.Keys(given)) {
		f.override(p, name, given[name])
	}
}

// decide sets a flag's values; what does not change keeps its origin.
func (f *completer) decide(fl *flag, values []string, o Origin) {
	if !fl.is(values) {
		fl.values, fl.origin = values, o
	}
}

// override is one flag as it is written; null is what upstream has.
func (f *completer) override(p *part, name string, given any) {
	field := join(p.field+".flags", name)
	u, ok := f.upstream.Flags[p.field][name]
	if !ok {
		hint := didYouMean(name, f.upstream.flagNames(p.field))
		if trimmed := strings.TrimLeft(name, "-"); trimmed != name {
			hint = "write it without dashes"
		}
		f.hint(field, hint, "%s has no flag --%s", f.upstream.from(p.field), name)
		return
	}
	var values []string
	var err error
	switch items, isList := given.([]any); {
	case given == nil:
		values = u.values(u.Default)
	case isList && repeats(u.Type):
		values, err = texts(items)
	default:
		var text string
		text, err = flagText(given)
		values = u.values(text)
	}
	for _, value := range values {
		if err == nil {
			err = u.check(value)
		}
		if err == nil && p.program.shell && strings.ContainsAny(value, " \t") {
			err = fmt.Errorf("%q has a blank, and the shell that starts %s would split it", value, p.program.unit)
		}
	}
	if err != nil {
		f.errorf(field, "%v", err)
		return
	}
	fl, ok := p.flags[name]
	if !ok {
		fl = flag{values: u.values(u.Default), origin: Origin{Default, f.upstream.from(p.field)}, upstream: u}
	}
	if !fl.is(values) {
		f.note(p, field, name, u)
	}
	f.decide(&fl, values, Origin{Kind: User})
	p.flags[name] = fl
}

// note says what upstream says against a flag that is overridden.
func (f *completer) note(p *part, field, name string, u UpstreamFlag) {
	switch u.Note {
	case noteIgnored:
		f.hint(field, "set the field of "+p.field+".config", "%s does not look at --%s where it has a configuration document", f.upstream.from(p.field), name)
	case noteDocument:
		f.warn(field, "set the field of "+p.field+".config", "--%s is deprecated", name)
	case noteDeprecated:
		f.warn(field, "", "--%s is deprecated", name)
	}
}
