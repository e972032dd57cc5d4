package config

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/hardtack/packer-plugin-hardtack/pkg/node/envfile"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/machine"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/reason"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// The image's files that daemons take the cluster's facts from.
const (
	commonFile    = "/etc/kubernetes/config"
	apiServerFile = "/etc/kubernetes/kube-apiserver"
	managerFile   = "/etc/kubernetes/kube-controller-manager"
	kubeletFile   = "/etc/kubernetes/kubelet.yaml"
	kubeletDir    = "/etc/kubernetes/kubelet.conf.d"
	proxyFile     = "/etc/kubernetes/kube-proxy.yaml"
	flannelFile   = "/etc/kubernetes/flannel.json"
	// ownDropIn is written by the agent itself, at every boot, from this configuration.
	ownDropIn = "50-machine.conf"
)

// facts are what all members of a cluster must agree on. What the machine file does not say is what the daemons would go
// by: the variables that their units read, with the role file's last, and their configuration files.
func (r *reader) facts() {
	d, n := r.document, &r.config.Network
	server := r.variables(apiServerFile, role.Masters)
	manager := r.variables(managerFile, role.Masters)
	port := ""
	if d.API.Port != 0 {
		port = strconv.Itoa(d.API.Port)
	}
	port = r.fact(machine.FieldAPIPort, port, server.flag("API_PORT", "secure-port", "KUBE_APISERVER_ARGS"), role.Masters)
	r.config.API.Port, _ = strconv.Atoi(port) // one that is none is a problem below
	if port != "" && (r.config.API.Port < 1 || r.config.API.Port > 65535) {
		r.problemf("write API_PORT=--secure-port=443 into "+role.Masters.File(), "the API's port %q is no port", port)
	}
	n.ServiceCIDR = r.fact(machine.FieldServiceCIDR, d.Network.ServiceCIDR, server.flag("SERVICE_CIDR", "service-cluster-ip-range", "KUBE_APISERVER_ARGS"), role.Masters)
	n.PodCIDR = r.fact(machine.FieldPodCIDR, d.Network.PodCIDR, manager.flag("CLUSTER_CIDR", "cluster-cidr", "KUBE_CONTROLLER_MANAGER_ARGS"), role.Masters)
	kubelet := r.kubelet()
	dns := d.Network.DNSAddress
	if dns == "" && d.Network.ServiceCIDR != "" {
		dns = machine.DNSOf(d.Network.ServiceCIDR)
	}
	n.DNSAddress = r.fact(machine.FieldDNSAddress, dns, kubelet["clusterDNS"], "")
	n.DNSDomain = r.fact(machine.FieldDNSDomain, d.Network.DNSDomain, kubelet["clusterDomain"], "")
	r.nodeFiles(kubelet)
}

// fact returns the value of a field: the machine file's, or else the one in the image's files. If a daemon of this machine
// reads it from those files, Agree compares that value too.
func (r *reader) fact(field, document string, file Value, daemon role.Role) string {
	file.Field = field
	value := r.recordFirst(written(field, document), file)
	if value == "" {
		r.problemf("bake the image again: hardtack tree lists what it must have", "no file of the image says %s", field)
	}
	if document != "" && file.Value != "" && daemon != "" && r.roles.Has(daemon) {
		r.config.daemons = append(r.config.daemons, file)
	}
	return value
}

// nodeFiles collects the values that a node's daemons read from files. The agent's own drop-in overrides the kubelet's
// where they are the image's defaults.
func (r *reader) nodeFiles(kubelet map[string]Value) {
	if !r.roles.Has(role.Minions) {
		return
	}
	for _, f := range []struct{ key, field, usual string }{
		{"clusterDNS", machine.FieldDNSAddress, machine.ImageDNSAddress}, {"clusterDomain", machine.FieldDNSDomain, machine.ImageDNSDomain},
	} {
		if v := kubelet[f.key]; v.Value != "" && v.Value != f.usual {
			v.Field = f.field
			r.config.daemons = append(r.config.daemons, v)
		}
	}
	for _, f := range []struct{ file, key string }{{proxyFile, "clusterCIDR"}, {flannelFile, "Network"}} {
		if v := r.settings(f.file)[f.key]; v.Value != "" {
			v.Field = machine.FieldPodCIDR
			r.config.daemons = append(r.config.daemons, v)
		}
	}
}

// unitVariables are the variables of a unit's environment files, of which the last one wins.
type unitVariables struct {
	values map[string]Value
}

// variables reads the environment files of a unit of a role.
func (r *reader) variables(own string, of role.Role) unitVariables {
	l := unitVariables{map[string]Value{}}
	for _, file := range []string{commonFile, own} {
		text, err := r.read(file)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			r.problemf("look at the file's mode and at the disk", "reading what the image says: %v", err)
		}
		l.add(envfile.Parse(text), FromImage, file)
	}
	if r.roles.Has(of) {
		l.add(r.files[of], FromRole, of.File())
	}
	return l
}

func (l unitVariables) add(vars envfile.Variables, from From, where string) {
	for _, v := range vars {
		l.values[v.Name] = Value{"", v.Value, from, where}
	}
}

// flag is the value of a flag: from its variable, or from the last arguments, which win.
func (l unitVariables) flag(variable, flag, arguments string) Value {
	out := Value{}
	for _, name := range []string{variable, arguments} {
		for word := range strings.FieldsSeq(l.values[name].Value) {
			if value, ok := strings.CutPrefix(word, "--"+flag+"="); ok {
				out = l.values[name]
				out.Value = value
			}
		}
	}
	return out
}

// kubelet is what the kubelet's configuration and its drop-ins say, but for the agent's own.
func (r *reader) kubelet() map[string]Value {
	out := r.settings(kubeletFile)
	names, _ := filepath.Glob(filepath.Join("/", r.root, kubeletDir, "*.conf")) // the pattern is a good one
	slices.Sort(names)
	for _, name := range names {
		if filepath.Base(name) == ownDropIn {
			continue
		}
		for key, v := range r.settings(filepath.Join(kubeletDir, filepath.Base(name))) {
			out[key] = v
		}
	}
	return out
}

// settings reads the plain values of a configuration file, and of a list the first.
func (r *reader) settings(file string) map[string]Value {
	out := map[string]Value{}
	text, err := r.read(file)
	if errors.Is(err, fs.ErrNotExist) {
		return out
	}
	var all map[string]any
	if err == nil {
		err = yaml.Unmarshal([]byte(text), &all) // JSON is YAML
	}
	if err != nil {
		r.problemf("mend the file, or leave it out of the user data: the image has its own", "reading %s: %v", file, err)
		return out
	}
	for key, value := range all {
		if list, ok := value.([]any); ok && len(list) > 0 {
			value = list[0]
		}
		if text, ok := value.(string); ok {
			out[key] = Value{"", text, FromImage, file}
		}
	}
	return out
}

// Agree compares the configuration with the facts that the cluster has agreed on, and takes values that it does not
// have from them. where is the name of the object. A difference is an error with both values: a machine that started
// nevertheless could not be found by others, or would assign addresses twice.
func (t *Effective) Agree(info machine.ClusterInfo, where string) error {
	if len(t.Etcd.Members) == 0 {
		t.Etcd.Members = info.Etcd.Members
	}
	agreed := map[string]string{}
	for _, f := range info.Facts() {
		agreed[f.Field] = f.Value
	}
	var found []string
	for _, v := range append(slices.Clone(t.Values), t.daemons...) {
		if want, shared := agreed[v.Field]; shared && v.Value != want {
			found = append(found, fmt.Sprintf("%s is %s in %s, and the cluster's is %s", v.Field, v.Value, v.Where, want))
		}
	}
	if len(found) == 0 {
		return nil
	}
	return &reason.Error{
		Reason: reason.Drift, Err: fmt.Errorf("this machine is not of the cluster that %s describes: %s", where, strings.Join(found, "; ")),
		Next: "hardtack userdata -f CLUSTER.yaml --group GROUP prints this cluster's user data, and hardtack pki show what was agreed on; what an image has otherwise is baked anew",
	}
}

// Member decides which member of etcd the machine is. tag is the instance's tag, "" if there is none, and why explains
// it.
func (t *Effective) Member(tag, why string) error {
	members := t.Etcd.Members
	name, from := t.Etcd.Member, role.Etcd.File()
	if name == "" {
		name, from = tag, "the tag "+role.TagEtcdMember
	}
	list := strings.Join(members, ", ")
	line := fmt.Sprintf("write the line %s=NAME, with one of %s, into %s in the machine's user data", MemberVariable, list, role.Etcd.File())
	switch {
	case len(members) == 0 && t.Etcd.Member != "" && t.Etcd.Member != machine.LoneMember:
		return &reason.Error{Reason: reason.Drift, Err: fmt.Errorf("this machine is to be etcd's member %s, and the cluster names no members: its only one is %s", name, machine.LoneMember),
			Next: fmt.Sprintf("leave %s out of %s, or name the members in the cluster's document (members: [a, b, c]) before hardtack pki create", MemberVariable, role.Etcd.File())}
	case len(members) == 0:
		if t.Etcd.Member == "" {
			t.Values = append(t.Values, Value{"etcd.member", machine.LoneMember, FromImage, "the agent"})
		}
		t.Etcd.Member = machine.LoneMember
		return nil
	case name == "":
		return &reason.Error{Reason: reason.Config, Err: fmt.Errorf("it is not given which member of etcd this machine is: the cluster has %s, and %s", list, why),
			Next: line + "; or give its group the tag " + role.TagEtcdMember + " and its launch template InstanceMetadataTags=enabled"}
	case !slices.Contains(members, name):
		return &reason.Error{Reason: reason.Drift, Err: fmt.Errorf("this machine is etcd's member %q by %s, and the cluster's members are %s", name, from, list), Next: line}
	}
	if t.Etcd.Member == "" {
		t.Values = append(t.Values, Value{"etcd.member", name, FromInstance, from})
	}
	t.Etcd.Member = name
	return nil
}
