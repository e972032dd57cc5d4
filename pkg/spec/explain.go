package spec

import (
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/hardtack/packer-plugin-hardtack/pkg/machine"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// Explanation says what one field is, what it is in this cluster and why, and what it becomes.
type Explanation struct {
	Path string `json:"path"`
	// What is the field's meaning: one sentence, or where upstream documents it.
	What string `json:"what,omitempty"`
	// Type is upstream's, for flags and fields of documents.
	Type  string `json:"type,omitempty"`
	Value any    `json:"value"`
	// Origin is absent for what has fields of its own.
	Origin *Origin `json:"origin,omitempty"`
	// Default is what upstream has where nothing is given; absent where that is not known.
	Default any `json:"default,omitempty"`
	// Becomes says where it ends up on machines and in DNS.
	Becomes []string `json:"becomes,omitempty"`
	// Fields are the paths below, for what has any.
	Fields []FieldValue `json:"fields,omitempty"`
}

// FieldValue is one leaf below a path.
type FieldValue struct {
	Path   string `json:"path"`
	Value  any    `json:"value"`
	Origin Origin `json:"origin"`
}

// Explain says what is at a path of the document: "kubeAPIServer.flags.secure-port", "groups[0]", "network".
func (c *Complete) Explain(path string) (Explanation, error) {
	names, err := splitPath(path)
	if err != nil {
		return Explanation{}, fmt.Errorf("path %q: %w", path, err)
	}
	path = joinPath(names)
	tree, err := c.tree()
	if err != nil {
		return Explanation{}, err
	}
	value, ok := valueAt(tree, names)
	if !ok {
		return c.unset(path, names)
	}
	e := Explanation{Path: path, Value: value}
	if o, ok := c.Origins[path]; ok {
		e.Origin = &o
	} else {
		e.Value = nil
		e.Fields = c.below(path, tree)
	}
	c.describe(&e, names)
	return e, nil
}

// unset explains a path that the complete document does not have: one that upstream knows and that the
// document decides, or none at all.
func (c *Complete) unset(path string, names []string) (Explanation, error) {
	if len(names) == 3 && names[1] == "flags" {
		if u, ok := c.upstream.Flags[names[0]][names[2]]; ok {
			e := Explanation{Path: path, Type: u.Type, Default: u.Default}
			c.describe(&e, names)
			return e, nil
		}
	}
	if len(names) > 2 && names[1] == "config" {
		s := c.upstream.schema(names[0])
		if kind, ok := s.Fields[strings.Join(names[2:], ".")]; ok {
			return Explanation{Path: path, Type: kind, What: c.document(names[0]), Becomes: []string{"nothing: it is not given"}}, nil
		}
	}
	text := fmt.Sprintf("there is nothing at %s", path)
	if best := near(path, slices.Collect(maps.Keys(c.Origins))); best != "" {
		text += fmt.Sprintf(" (did you mean %s?)", best)
	}
	return Explanation{}, fmt.Errorf("%s", text)
}

// Paths lists the paths that Explain knows and that begin with prefix, sorted; for completion.
func (c *Complete) Paths(prefix string) []string {
	var paths []string
	for path := range c.Origins {
		if strings.HasPrefix(path, prefix) {
			paths = append(paths, path)
		}
	}
	slices.Sort(paths)
	return paths
}

// below lists the leaves under a path.
func (c *Complete) below(path string, tree any) []FieldValue {
	var fields []FieldValue
	for _, p := range slices.Sorted(maps.Keys(c.Origins)) {
		if path != "" && !within(p, path) {
			continue
		}
		names, err := splitPath(p)
		if err != nil {
			continue
		}
		if value, ok := valueAt(tree, names); ok {
			fields = append(fields, FieldValue{p, value, c.Origins[p]})
		}
	}
	return fields
}

// describe adds what the field is and what it becomes.
func (c *Complete) describe(e *Explanation, names []string) {
	if len(names) == 0 {
		return
	}
	for _, p := range c.parts {
		if p.field != names[0] {
			continue
		}
		switch {
		case len(names) == 3 && names[1] == "flags":
			c.describeFlag(e, p, names[2])
		case len(names) > 2 && names[1] == "config":
			c.describeField(e, p, names[2:])
		default:
			e.What = "the flags and the configuration document of " + c.upstream.from(p.field)
		}
		return
	}
	pattern := index.ReplaceAllString(e.Path, "[]")
	for _, k := range own {
		if k.path == pattern || strings.HasSuffix(k.path, ".*") && within(pattern, strings.TrimSuffix(k.path, ".*")) {
			e.What = k.what
			for _, b := range k.becomes {
				e.Becomes = append(e.Becomes, strings.ReplaceAll(b, clusterParameter, c.Cluster.Name))
			}
			return
		}
	}
}

var index = regexp.MustCompile(`\[\d+\]`)

func (c *Complete) describeFlag(e *Explanation, p part, name string) {
	program := strings.Fields(c.upstream.from(p.field))[0]
	e.What = fmt.Sprintf("the flag --%s of %s: see %s --help", name, c.upstream.from(p.field), program)
	u, ok := c.upstream.Flags[p.field][name]
	if !ok {
		return
	}
	e.Type, e.Default = u.Type, flag{values: u.values(u.Default), upstream: u}.plain()
	fl, ok := p.flags[name]
	if !ok {
		e.Becomes = []string{"nothing: the configuration document decides (" + c.document(p.field) + ")"}
		return
	}
	words := fl.words(name, memberParameter)
	line := strings.Join(words, " ")
	switch p.carrier(fl, words, name) {
	case byImage:
		e.Becomes = []string{"not given: " + program + " has it by itself"}
		if fl.bare != nil && fl.bare.set {
			e.Becomes = []string{line + ", as the image has it (" + fl.bare.from + ")"}
		}
	case byEtcd:
		e.Becomes = []string{fmt.Sprintf("%s=%s in %s", etcdVariable(name), fl.text(), p.program.role.File())}
	case byVariable:
		e.Becomes = []string{fmt.Sprintf("%s=%s in %s", fl.bare.variable, line, p.program.role.File())}
	case byArguments:
		e.Becomes = []string{fmt.Sprintf("%s in %s of %s", line, p.program.args, p.program.role.File())}
	case byDropIn:
		e.Becomes = []string{fmt.Sprintf("%s in the drop-in 50-hardtack-spec.conf of %s", line, p.program.unit)}
	}
}

// document names the configuration document of a component.
func (c *Complete) document(field string) string {
	for _, p := range c.parts {
		if p.field == field && p.document != nil {
			return "the document " + p.document.path + " of " + c.upstream.from(field)
		}
	}
	return ""
}

func (c *Complete) describeField(e *Explanation, p part, names []string) {
	if p.document == nil {
		return
	}
	e.What = "a field of " + c.document(p.field)
	e.Type = c.upstream.schema(p.field).Fields[strings.Join(names, ".")]
	if value, ok := valueAt(p.document.defaults, names); ok {
		e.Default = value
	}
	file, differs := p.document.file()
	given, inFile := valueAt(file, names)
	switch {
	case !inFile || given == nil:
		e.Becomes = []string{"not given: the program has it by itself"}
	case differs:
		e.Becomes = []string{fmt.Sprintf("%s in %s, by the user data of the groups with the role %s", strings.Join(names, "."), p.document.path, p.program.role)}
	default:
		e.Becomes = []string{fmt.Sprintf("%s in %s, as the image has it", strings.Join(names, "."), p.document.path)}
	}
	if p.field == "kubelet" {
		e.Becomes = append(e.Becomes, "what a machine finds out about itself comes over it: /etc/kubernetes/kubelet.conf.d/*.conf")
	}
}

// own says what the fields are that are Hardtack's own. [] stands for any index, and .* for all below.
var own = []struct {
	path, what string
	becomes    []string
}{
	{"apiVersion", "the format of the document", nil},
	{"kind", "the kind of the document", nil},
	{"name", "the cluster's name, a DNS label", []string{"CLUSTER_NAME in " + path.Join(role.Dir, role.Prefix+"<role>"), "the tag KubernetesCluster of groups",
		"the records <role>." + clusterParameter + ".k8s"}},
	{"version", "the Kubernetes minor version of the image: which flags and fields there are", []string{"nothing on machines: the image has the programs"}},
	{"store", "where the cluster's secrets are", []string{"store in " + machine.Path}},
	{"launchHook", "the lifecycle hook that a machine completes when its roles work; none is none", []string{"launchHook in " + machine.Path, "the groups' hook for launches"}},
	{"api.port", "the port of every API server", []string{"api.port in " + machine.Path, "API_PORT in " + role.Masters.File() + ", where it is not the image's"}},
	{"api.names", "further names and addresses of the API server", []string{"api.names in " + machine.Path, "names in the API server's certificate"}},
	{"network.serviceCIDR", "the range of Services; its first address is the API's Service", []string{"network.serviceCIDR in " + machine.Path,
		"--service-cluster-ip-range of kube-apiserver and kube-controller-manager", "an address in the API server's certificate"}},
	{"network.podCIDR", "the range of all pods; every node has a /24 of it", []string{"network.podCIDR in " + machine.Path, "--cluster-cidr of kube-controller-manager",
		"clusterCIDR of kube-proxy", "Network of flannel"}},
	{"network.dnsAddress", "the address of the Service kube-dns", []string{"network.dnsAddress in " + machine.Path, "clusterDNS of the kubelet"}},
	{"network.dnsDomain", "the domain that pods search in", []string{"network.dnsDomain in " + machine.Path, "clusterDomain of the kubelet"}},
	{"network.mtu", "the MTU of the pods' network in bytes; 0 is the interface's less VXLAN's 50", []string{"network.mtu in " + machine.Path}},
	{"groups[].name", "the group's name; with members one group <name>-<member> each",
		[]string{"group in " + machine.Path + ", behind the cluster's name", "the AutoScaling group " + clusterParameter + "-<name>"}},
	{"groups[].roles", "what each machine of the group is", []string{"the role files " + path.Join(role.Dir, role.Prefix+"<role>"), "the tag Role of the group",
		"the records <role>." + clusterParameter + ".k8s"}},
	{"groups[].size", "how many machines the group keeps", []string{"the AutoScaling group's size"}},
	{"groups[].members", "the names of etcd's members, a machine each", []string{"etcd.member in " + machine.Path, "the tag EtcdMembers of the groups",
		"the records etcd-<member>." + clusterParameter + ".k8s", "ETCD_NAME and ETCD_INITIAL_CLUSTER in " + role.Etcd.File()}},
	{"groups[].cpus", "how many processors a lab gives each machine", []string{"nothing on machines"}},
	{"groups[].memory", "how many MiB of memory a lab gives each machine", []string{"nothing on machines"}},
	{"groups[].node.naming", "how a node gets its name", []string{"node.naming in " + machine.Path}},
	{"groups[].node.labels.*", "the labels that a node registers with", []string{"node.labels in " + machine.Path}},
	{"groups[].node.taints", "the taints that a node registers with", []string{"node.taints in " + machine.Path}},
	{"groups[].node.maxPods", "how many pods a node takes; 0 is 110, or what its range holds", []string{"node.maxPods in " + machine.Path}},
	{"aws.channel", "which image machines on AWS are launched from: the one that /hardtack/<channel>/image-id names in Parameter Store",
		[]string{"the default of the stack's parameter ImageId"}},
	{"aws.loadBalancer", "whether a network load balancer stands before the API servers: none, internal or internet-facing",
		[]string{"a load balancer, its listener and its targets, or nothing"}},
	{"aws.key", "the ARN of the KMS key that encrypts the machines' disks, which AWSServiceRoleForAutoScaling may use; empty is the account's own key for EBS",
		[]string{"KmsKeyId in every launch template"}},
	{"groups[].aws.instanceType", "the EC2 instance type of the group's machines", []string{"InstanceType in the group's launch template"}},
	{"groups[].aws.volume", "the size of a machine's disk in GiB", []string{"VolumeSize in the group's launch template"}},
	{"groups[].aws.max", "how many machines the group may be scaled out to", []string{"the AutoScaling group's MaxSize"}},
	{"fileAssets.*", "files of the operator, there before any unit of a role starts", []string{"the file in the user data of the groups that it is for"}},
	{"fileAssets[].*", "files of the operator, there before any unit of a role starts", []string{"the file in the user data of the groups that it is for"}},
	{"hooks.*", "systemd units of the operator", []string{"units in " + unitDir + ", by the user data of the groups that they are for"}},
	{"hooks[].*", "systemd units of the operator", []string{"units in " + unitDir + ", by the user data of the groups that they are for"}},
	{"additionalUserData.*", "further parts of the user data, for cloud-init", []string{"MIME parts of the user data of the groups that they are for"}},
	{"additionalUserData[].*", "further parts of the user data, for cloud-init", []string{"MIME parts of the user data of the groups that they are for"}},
}
