package spec

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/problem/near"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/machine"
)

// resolved is one component with every flag and every field of its document decided.
type resolved struct {
	component
	program imageProgram
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
	// upstream is upstream's description of it.
	upstream UpstreamFlag
	// image is the flag on a machine with a minimal role file; nil if it is not given there.
	image *baked
	// agent: the machine's agent sets the flag, from the cluster's own facts.
	agent bool
}

// has reports whether the flag has just these values.
func (f flag) has(values []string) bool { return slices.Equal(f.values, values) }

// derivation is a flag or a field of a document that follows from the cluster. The value of a flag is a text, or a list of them for
// one that is given once for each.
type derivation struct {
	component, name string
	value           any
	from            string
	// agent is flag.agent.
	agent bool
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
		{"kubeAPIServer", "service-cluster-ip-range", c.Network.ServiceCIDR, "network.serviceCIDR", false},
		{"kubeControllerManager", "service-cluster-ip-range", c.Network.ServiceCIDR, "network.serviceCIDR", false},
		{"kubeControllerManager", "cluster-cidr", c.Network.PodCIDR, "network.podCIDR", false},
		{"kubeAPIServer", "secure-port", fmt.Sprint(c.API.Port), "api.port", false},
	}
	derived = append(derived, f.issuerFlags()...)
	derived = append(derived, f.cloudFlags()...)
	derived = append(derived, f.bySize()...)
	members := f.members()
	if len(members) == 0 {
		return derived
	}
	derived = append(derived, derivation{"kubeAPIServer", "etcd-servers", machine.EtcdServers(c.Name, members), "groups", true})
	for _, s := range machine.EtcdSettings(c.Name, memberParameter, members) {
		derived = append(derived, derivation{"etcd", s.Flag, s.Value, "groups", true})
	}
	return derived
}

// members are the names of etcd's members, none for the one beside its API server.
func (f *completer) members() []string {
	if len(f.out.Groups) == 0 {
		return nil
	}
	return f.out.Groups[0].Members
}

// components lays the layers of each component over each other: upstream, image, cluster, user.
func (f *completer) components() {
	derived := f.derivedFlags()
	for _, c := range components {
		p := resolved{component: c, program: f.image.programs[c.name], flags: map[string]flag{}}
		given := c.overrides(&f.in.Components)
		f.flags(&p, given.Flags, derived)
		f.document(&p, given.Config)
		f.gates(&p, given)
		out := c.overrides(&f.out.Cluster.Components)
		out.Flags = map[string]any{}
		for name, fl := range p.flags {
			out.Flags[name] = fl.plain()
			f.out.Origins[join(c.name+".flags", name)] = fl.origin
		}
		f.out.components = append(f.out.components, p)
	}
}

// flags decides a component's flags.
func (f *completer) flags(p *resolved, given map[string]any, derived []derivation) {
	known := f.upstream.Flags[p.name]
	upstream := Origin{Default, f.upstream.program(p.component)}
	for name, u := range known {
		if u.Note == noteDocument || u.Note == noteIgnored || decided(p.name, name) {
			continue // the document decides, or the machine
		}
		p.flags[name] = flag{values: u.values(u.Default), origin: upstream, upstream: u}
	}
	for name, b := range p.program.flags {
		u, ok := known[name]
		if !ok {
			f.errorf(p.name, "the image's %s gives --%s, which %s does not have", b.from, name, f.upstream.program(p.component))
			continue
		}
		fl := flag{values: u.values(u.Default), origin: upstream, upstream: u, image: &b}
		if b.set {
			b.value = strings.ReplaceAll(b.value, clusterParameter, f.out.Cluster.Name)
			f.setValues(&fl, u.values(b.value), Origin{Default, b.from})
		}
		p.flags[name] = fl
	}
	for _, m := range machine.AllComputed() {
		if fl, ok := p.flags[m.Name]; ok && m.Component == p.name && !m.IsField && (fl.image == nil || !fl.image.set) {
			fl.origin = Origin{ByMachine, m.Rule}
			p.flags[m.Name] = fl
		}
	}
	for _, d := range derived {
		if d.component == p.name {
			fl := p.flags[d.name]
			// Also where the image happens to say the same: it would follow.
			values, many := d.value.([]string)
			if !many {
				values = fl.upstream.values(d.value.(string))
			}
			fl.values, fl.origin, fl.agent = values, Origin{Derived, d.from}, d.agent
			p.flags[d.name] = fl
		}
	}
	for _, name := range slices.Sorted(maps.Keys(given)) {
		f.override(p, name, given[name])
	}
}

// ofMembership are etcd's flags that say with whom a member starts, and with which data.
var ofMembership = []string{
	"data-dir", "wal-dir", "force-new-cluster", "initial-cluster", "initial-cluster-state", "initial-cluster-token",
	"discovery", "discovery-srv", "discovery-srv-name", "discovery-token", "discovery-endpoints",
}

// decided reports whether a component's flag is the agent's alone, and has no value before.
func decided(component, flag string) bool {
	return component == "etcd" && slices.Contains(ofMembership, flag)
}

// ofAddress are etcd's flags that say under which name and where a member is reached. They follow from the groups, and other
// parts of Hardtack have the same addresses: the epoch's record, by which member IDs are computed, the certificates, the API
// servers, and the agent, which asks the member for all that it decides. listen-client-http-urls takes /health away from the
// clients' addresses, where it is asked for.
var ofAddress = []string{"name", "initial-advertise-peer-urls", "advertise-client-urls", "listen-peer-urls", "listen-client-urls", "listen-client-http-urls"}

// settled reports whether a component's flag follows from the groups, and from nothing else.
func settled(component, flag string) bool {
	return component == "etcd" && slices.Contains(ofAddress, flag)
}

// setValues sets a flag's values; what does not change keeps its origin.
func (f *completer) setValues(fl *flag, values []string, o Origin) {
	if !fl.has(values) {
		fl.values, fl.origin = values, o
	}
}

// override sets one flag of the document; null is upstream's default.
func (f *completer) override(p *resolved, name string, given any) {
	field := join(p.name+".flags", name)
	u, ok := f.upstream.Flags[p.name][name]
	if !ok {
		hint := near.DidYouMean(name, f.upstream.flagNames(p.name))
		if trimmed := strings.TrimLeft(name, "-"); trimmed != name {
			hint = "write it without dashes"
		}
		f.hint(field, hint, "%s has no flag --%s", f.upstream.program(p.component), name)
		return
	}
	if decided(p.name, name) {
		f.hint(field, "leave it out", "--%s is decided on each machine, from the records of the cluster's store: a member that started by other rules could be a second cluster", name)
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
		fl = flag{values: u.values(u.Default), origin: Origin{Default, f.upstream.program(p.component)}, upstream: u}
	}
	if !fl.has(values) {
		if settled(p.name, name) {
			f.hint(field, "leave it out", "--%s follows from the members' names: records, certificates and the machine's agent have that name and these addresses too", name)
			return
		}
		fl.agent = false
		f.note(p, field, name, u)
	}
	f.setValues(&fl, values, Origin{Kind: User})
	p.flags[name] = fl
}

// note reports an override of a flag that upstream deprecates or ignores.
func (f *completer) note(p *resolved, field, name string, u UpstreamFlag) {
	switch u.Note {
	case noteIgnored:
		f.hint(field, "set the field of "+p.name+".config", "%s does not look at --%s where it has a configuration document", f.upstream.program(p.component), name)
	case noteDocument:
		f.warn(field, "set the field of "+p.name+".config", "--%s is deprecated", name)
	case noteDeprecated:
		f.warn(field, "", "--%s is deprecated", name)
	}
}
