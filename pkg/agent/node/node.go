// Package node makes a machine into one particular node: its name, what it tells the API about itself, and how
// much of it pods may have.
//
// Its rule: New computes everything from what the machine has been told and what it has found out about
// itself, without touching anything; Apply makes it so, and writes last the file that the kubelet waits for,
// so that nothing registers under a name that is not meant.
package node

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"regexp"
	"strings"

	"github.com/hardtack/packer-plugin-hardtack/pkg/agent/reason"
	"github.com/hardtack/packer-plugin-hardtack/pkg/machine"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// The files that a plan writes.
const (
	// EnvFile has the names and flags of the units that run on a node; they wait for it.
	EnvFile = "/run/hardtack/node.env"
	// KubeletFile is read by the kubelet over its configuration.
	KubeletFile = "/etc/kubernetes/kubelet.conf.d/50-machine.conf"
	// TemplateFile is what containerd makes the pods' network from, and BaseTemplate what it comes from.
	TemplateFile = "/run/hardtack/cni-template.conflist"
	BaseTemplate = "/etc/containerd/cni-template.conflist"
	// InstanceFile is what the metadata service has said, for a reboot while it does not answer.
	InstanceFile = "/var/lib/hardtack/instance.json"
)

// Facts are what a machine has found out about itself.
type Facts struct {
	// Hostname is the kernel's.
	Hostname string
	Roles    role.Set
	// Override is KUBELET_HOSTNAME of the minions' role file, the seed's word for the node's name; or empty.
	Override string
	// Instance is what the metadata service says; nil where there is none. Hardware is what the hardware calls
	// itself, or empty.
	Instance *Instance
	Hardware string
	// Link is the interface that the default route goes through.
	Link Link
	// Memory is the machine's, in bytes, as the kernel counts it (MemTotal), and CPUs how many it has.
	Memory int64
	CPUs   int
	// Kubelet is the kubelet's configuration file and Template the CNI template, both as the image or the
	// user data has them.
	Kubelet, Template []byte
}

// Instance is what a metadata service says of the machine.
type Instance struct {
	ID string `json:"id"`
	// Zone is the availability zone, Region its region, Type the instance type.
	Zone   string `json:"zone"`
	Region string `json:"region"`
	Type   string `json:"type,omitempty"`
	// Name is the private DNS name.
	Name string `json:"name"`
}

// Link is a network interface.
type Link struct {
	Name string     `json:"name"`
	MTU  int        `json:"mtu"`
	Addr netip.Addr `json:"address"`
}

// Plan is a node as it is to be.
type Plan struct {
	// Name is the node's and the host's. It is empty where a machine that is no node could get none.
	Name       string `json:"name"`
	ProviderID string `json:"providerID,omitempty"`
	// MTU of the pods' network, in bytes; 0 on a machine that is no node.
	MTU int `json:"mtu"`
	// Reserved is what pods cannot have, in MiB and thousandths of a CPU.
	Reserved Reservation `json:"reserved"`
	Files    []File      `json:"files"`
	// Warnings are what somebody should know and does not stop anything.
	Warnings []string `json:"warnings,omitempty"`
}

// File is one file of a plan.
type File struct {
	Path    string `json:"path"`
	Content string `json:"content"`
}

// New computes the plan: the whole of it for a minion, and the name for every machine. Errors have a reason.
func New(c machine.Config, f Facts) (Plan, error) {
	name, err := nameOf(c.Node.Naming, f)
	if !f.Roles.Has(role.Minions) {
		return named(name, err, f)
	}
	if err != nil {
		return Plan{}, err
	}
	p := Plan{Name: name, MTU: mtu(c.Network.MTU, f.Link.MTU)}
	if f.Instance != nil {
		// The form of the AWS cloud provider, which other programs take apart.
		p.ProviderID = fmt.Sprintf("aws:///%s/%s", f.Instance.Zone, f.Instance.ID)
	}
	p.Reserved = reserve(f.Memory, f.CPUs, f.Roles)
	if p.Reserved.Capped {
		p.Warnings = append(p.Warnings, fmt.Sprintf("%d MiB of memory are little for the roles %s: pods get a quarter of it all the same", f.Memory>>20, f.Roles))
	}
	kubelet, err := kubeletFile(c, f, p)
	if err != nil {
		return Plan{}, err
	}
	template, err := withMTU(f.Template, p.MTU)
	if err != nil {
		return Plan{}, err
	}
	p.Files = []File{{KubeletFile, kubelet}, {TemplateFile, template}}
	if err := p.remember(f); err != nil {
		return Plan{}, err
	}
	p.Files = append(p.Files, File{EnvFile, envFile(c, f, p)})
	return p, nil
}

// named is the plan of a machine that is no node. It goes without a name where it can get none: it needs one only
// beside others of its kind.
func named(name string, none error, f Facts) (Plan, error) {
	p := Plan{Name: name}
	if none != nil {
		p.Warnings = append(p.Warnings, "this machine stays without a name: "+none.Error())
	}
	return p, p.remember(f)
}

// remember has the plan keep what the metadata service has said.
func (p *Plan) remember(f Facts) error {
	if f.Instance == nil || f.Hardware == "" {
		return nil
	}
	text, err := json.Marshal(remembered{f.Hardware, *f.Instance})
	if err != nil {
		return err
	}
	p.Files = append(p.Files, File{InstanceFile, string(text) + "\n"})
	return nil
}

// remembered is what the metadata service has said of a machine, by what its hardware calls itself: the disk may be a
// copy of another machine's.
type remembered struct {
	Hardware string   `json:"hardware"`
	Instance Instance `json:"instance"`
}

// nodeForm is what the API takes as a node's name (a DNS subdomain) and the kernel as a host's (64 bytes).
var nodeForm = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*$`)

const maxHostname = 64

// nameOf decides the node's name: the role file's word, then the machine file's, then what is usual.
func nameOf(naming string, f Facts) (string, error) {
	if naming == "" {
		naming = machine.NamingHostname
		if f.Instance != nil {
			naming = machine.NamingIPName
		}
	}
	var name string
	switch override := strings.TrimPrefix(strings.TrimSpace(f.Override), "--hostname-override="); {
	case override != "":
		name, naming = override, "KUBELET_HOSTNAME of the role file"
	case naming == machine.NamingHostname:
		name = f.Hostname
	case f.Instance == nil:
		return "", reason.Errorf(reason.Config, "node.naming %q: this machine has no metadata service; use %q", naming, machine.NamingHostname)
	case naming == machine.NamingInstanceID:
		name = f.Instance.ID
	default:
		name = f.Instance.Name
	}
	// The kubelet makes its own name small, and so must everything that has to find its node.
	name = strings.ToLower(strings.TrimSpace(name))
	if !nodeForm.MatchString(name) || len(name) > maxHostname || name == unnamed {
		return "", reason.Errorf(reason.Config, "%q (by %s) cannot be a node's name: it must be a DNS name of at most %d bytes, and not localhost", name, naming, maxHostname)
	}
	return name, nil
}

// vxlan is what VXLAN adds to a packet, in bytes: outer Ethernet 14, IPv4 20, UDP 8, VXLAN 8 (RFC 7348).
const vxlan = 50

// minMTU is what every IPv4 host must take (RFC 791).
const minMTU = 576

func mtu(told, link int) int {
	if told != 0 {
		return told
	}
	return max(link-vxlan, minMTU)
}

// mtuField is the field of the template that stands for "the machine's".
var mtuField = regexp.MustCompile(`("mtu"\s*:\s*)0\b`)

// withMTU puts the MTU into the template. One that has no "mtu": 0 is the operator's and stays as it is.
func withMTU(template []byte, mtu int) (string, error) {
	if len(template) == 0 {
		return "", reason.Errorf(reason.Config, "%s is missing or empty", BaseTemplate)
	}
	return mtuField.ReplaceAllString(string(template), fmt.Sprintf("${1}%d", mtu)), nil
}

// envFile has what the node's units take from the environment. The role file is read after it.
func envFile(c machine.Config, f Facts, p Plan) string {
	var b strings.Builder
	b.WriteString("# Written by hardtack-agent node at every boot.\n")
	fmt.Fprintf(&b, "NODE_NAME=%s\n", p.Name)
	fmt.Fprintf(&b, "KUBELET_HOSTNAME=--hostname-override=%s\n", p.Name)
	// Without it the kubelet takes an address that its own name has, which can be that of the pods' bridge.
	if f.Link.Addr.IsValid() {
		fmt.Fprintf(&b, "NODE_ADDRESS=--node-ip=%s\n", f.Link.Addr)
	}
	if l := labels(c, f); l != "" {
		fmt.Fprintf(&b, "NODE_LABELS=--node-labels=%s\n", l)
	}
	return b.String()
}
