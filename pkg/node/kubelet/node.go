// Package kubelet configures a machine as one particular node: its name, the facts that it reports to the API, and how
// much of it pods may have.
//
// Its rule: New computes the whole plan from the configuration and the gathered facts, and changes nothing. Apply
// carries it out, and writes the file that the kubelet waits for last, so that no node registers under a wrong name.
package kubelet

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"regexp"
	"strings"

	"github.com/hardtack/packer-plugin-hardtack/pkg/node/machine"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/reason"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// The files that a plan writes.
const (
	// EnvFile has the names and flags for the units of a node, which wait for it.
	EnvFile = "/run/hardtack/node.env"
	// KubeletFile is a drop-in that overrides the kubelet's configuration.
	KubeletFile = machine.KubeletFile
	// TemplateFile is the template from which containerd makes the CNI configuration; it is made from BaseTemplate.
	TemplateFile = "/run/hardtack/cni-template.conflist"
	BaseTemplate = "/etc/containerd/cni-template.conflist"
	// InstanceFile keeps the answers of the metadata service, for a reboot during which it does not answer.
	InstanceFile = "/var/lib/hardtack/instance.json"
)

// Facts are the facts about a machine from which its plan is computed.
type Facts struct {
	// Hostname is the host name that the kernel has.
	Hostname string
	Roles    role.Set
	// Override is KUBELET_HOSTNAME of the minions' role file, with which a seed sets the node's name; or empty.
	Override string
	// Instance has the answers of the metadata service; nil if the machine has none. Hardware is the instance id
	// or the UUID that the hardware reports, or empty.
	Instance *Instance
	Hardware string
	// Link is the interface of the default route.
	Link Link
	// Memory is the machine's memory in bytes, as the kernel counts it (MemTotal). CPUs is the number of its CPUs.
	Memory int64
	CPUs   int
	// Kubelet is the kubelet's configuration file and Template the CNI template, both from the image or the user
	// data.
	Kubelet, Template []byte
}

// Instance is the part of the metadata service's answers that a plan needs.
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

// Plan is the wanted configuration of a node.
type Plan struct {
	// Name is the name of the node and of the host. It may be empty if the machine is not a node.
	Name       string `json:"name"`
	ProviderID string `json:"provider_id,omitempty"`
	// MTU is the MTU of the pods' network in bytes; 0 if the machine is not a node.
	MTU int `json:"mtu"`
	// Reserved is the part of the machine that pods cannot use, in MiB and thousandths of a CPU.
	Reserved Reservation `json:"reserved"`
	Files    []File      `json:"files"`
	// Warnings are problems that do not stop the boot.
	Warnings []string `json:"warnings,omitempty"`
}

// File is one file of a plan.
type File struct {
	Path    string `json:"path"`
	Content string `json:"content"`
}

// New computes the plan: all of it for a minion, only the name for other machines. Errors have a reason.
func New(c machine.Config, f Facts) (Plan, error) {
	name, err := nameOf(c.Node.Naming, f)
	if !f.Roles.Has(role.Minions) {
		return hostPlan(name, err, f)
	}
	if err != nil {
		return Plan{}, err
	}
	p := Plan{Name: name, MTU: mtu(c.Network.MTU, f.Link.MTU)}
	if f.Instance != nil {
		// This is the form of the AWS cloud provider, which other programs parse.
		p.ProviderID = fmt.Sprintf("aws:///%s/%s", f.Instance.Zone, f.Instance.ID)
	}
	p.Reserved = reserve(f.Memory, f.CPUs, f.Roles)
	if p.Reserved.Capped {
		p.Warnings = append(p.Warnings, fmt.Sprintf("%d MiB of memory are little for the roles %s: the reservation is reduced, so that pods get a quarter of it", f.Memory>>20, f.Roles))
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

// hostPlan is the plan of a machine that is not a node. It may stay without a name: a name only matters beside other
// machines of its role.
func hostPlan(name string, nameErr error, f Facts) (Plan, error) {
	p := Plan{Name: name}
	if nameErr != nil {
		p.Warnings = append(p.Warnings, "this machine gets no name: "+nameErr.Error())
	}
	return p, p.remember(f)
}

// remember adds a file with the answers of the metadata service to the plan.
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

// remembered has the answers of the metadata service, with the id of the hardware: the disk may be a copy of another
// machine's.
type remembered struct {
	Hardware string   `json:"hardware"`
	Instance Instance `json:"instance"`
}

// nodeForm is the form of a node's name in the API (a DNS subdomain). The kernel limits a host's name to 64 bytes.
var nodeForm = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*$`)

const maxHostname = 64

// nameLine is the next step if a machine gets no name by itself.
var nameLine = "write the line KUBELET_HOSTNAME=--hostname-override=NAME into " + role.Minions.File() + " in the machine's user data"

// nameOf decides the node's name: the role file's, else that of the machine file's naming, else that of the default
// naming.
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
		return "", &reason.Error{Reason: reason.Config, Err: fmt.Errorf("node.naming is %q, and this machine has no metadata service", naming),
			Next: fmt.Sprintf("write node: {naming: %s} into the group of the cluster's document, or %s", machine.NamingHostname, nameLine)}
	case naming == machine.NamingInstanceID:
		name = f.Instance.ID
	default:
		name = f.Instance.Name
	}
	// The kubelet converts its name to lower case, and so must every program that looks for the node.
	name = strings.ToLower(strings.TrimSpace(name))
	if !nodeForm.MatchString(name) || len(name) > maxHostname || name == unnamed {
		return "", &reason.Error{Reason: reason.Config, Err: fmt.Errorf("%q (by %s) cannot be a node's name: it must be a DNS name of at most %d bytes, and not localhost", name, naming, maxHostname),
			Next: nameLine + "; or have DHCP give the machine a name"}
	}
	return name, nil
}

// vxlan is the overhead of VXLAN in bytes: outer Ethernet 14, IPv4 20, UDP 8, VXLAN 8 (RFC 7348).
const vxlan = 50

// minMTU is the MTU that every IPv4 host must support (RFC 791).
const minMTU = 576

func mtu(configured, link int) int {
	if configured != 0 {
		return configured
	}
	return max(link-vxlan, minMTU)
}

// mtuField is the field of the template that stands for the machine's MTU.
var mtuField = regexp.MustCompile(`("mtu"\s*:\s*)0\b`)

// withMTU sets the MTU in the template. A template without "mtu": 0 is the operator's and stays unchanged.
func withMTU(template []byte, mtu int) (string, error) {
	if len(template) == 0 {
		return "", reason.Errorf(reason.Config, "%s is missing or empty", BaseTemplate)
	}
	return mtuField.ReplaceAllString(string(template), fmt.Sprintf("${1}%d", mtu)), nil
}

// envFile renders the environment file of the node's units. They read the role file after it.
func envFile(c machine.Config, f Facts, p Plan) string {
	var b strings.Builder
	b.WriteString("# Written by hardtack-agent node at every boot.\n")
	fmt.Fprintf(&b, "NODE_NAME=%s\n", p.Name)
	fmt.Fprintf(&b, "KUBELET_HOSTNAME=--hostname-override=%s\n", p.Name)
	// Without it the kubelet looks its own name up, and may get the address of the pods' bridge.
	if f.Link.Addr.IsValid() {
		fmt.Fprintf(&b, "NODE_ADDRESS=--node-ip=%s\n", f.Link.Addr)
	}
	if l := labels(c, f); l != "" {
		fmt.Fprintf(&b, "NODE_LABELS=--node-labels=%s\n", l)
	}
	return b.String()
}
