package template

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// rule lets machines of a role, or a range of addresses, connect to ports of a role's machines. The template and the Terraform module
// are two renderings of the same list; its JSON is what the module reads.
type rule struct {
	To role.Role `json:"to"`
	// From is empty where CIDR is a range of addresses, and CIDR where From is a role.
	From role.Role `json:"from"`
	CIDR string    `json:"cidr"`
	IPv6 bool      `json:"ipv6"`

	Protocol string `json:"protocol"`
	Port     int    `json:"port"`
	Last     int    `json:"last"`
	// Ports is Port, or "30000-32767" for several.
	Ports   string `json:"ports"`
	Program string `json:"program"`
	// opening is set for a port that a unit of the image opens.
	opening bool
}

// rules are the rules between the roles' security groups, and of the ports that units of the image open, without those of the API
// servers' clients. A port that is open already is not opened again.
func (b *builder) rules() []rule {
	list := []rule{}
	for _, to := range b.roles() {
		if !b.reached(to) {
			continue
		}
		for _, p := range b.ports(to) {
			for _, from := range p.From {
				list = b.add(list, rule{To: to, From: from, Protocol: p.Protocol, Port: p.Number, Last: p.Number, Program: p.What()})
			}
		}
		for _, o := range b.openings {
			if o.Role != "" && o.Role != to {
				continue
			}
			// No unit's name: an image's tag, which the same rules are made of, has none.
			r := rule{To: to, Protocol: o.Protocol, Port: o.First, Last: o.Last, Program: "opened by a unit of the image", opening: true}
			for _, from := range o.From {
				r.From = from
				list = b.add(list, r)
			}
			r.From = ""
			for _, r.CIDR = range o.Ranges {
				r.IPv6 = strings.Contains(r.CIDR, ":")
				list = b.add(list, r)
			}
		}
	}
	return list
}

// add adds a rule, unless there is such a one, or its source is a role that no machine has.
func (b *builder) add(list []rule, r rule) []rule {
	same := func(other rule) bool {
		return other.To == r.To && other.From == r.From && other.CIDR == r.CIDR && other.Protocol == r.Protocol && other.Port == r.Port && other.Last == r.Last
	}
	if r.From != "" && !b.reached(r.From) || slices.ContainsFunc(list, same) {
		return list
	}
	if r.Ports = fmt.Sprint(r.Port); r.Last != r.Port {
		r.Ports = fmt.Sprintf("%d-%d", r.Port, r.Last)
	}
	return append(list, r)
}

// id is the logical name of the rule's resource. A rule is not changed, so all of it is in the name.
func (r rule) id() string {
	if !r.opening {
		return fmt.Sprintf("Ingress%s%dFrom%s", logical(string(r.To)), r.Port, logical(string(r.From)))
	}
	return fmt.Sprintf("Opening%s%s%sFrom%s", logical(string(r.To)), logical(r.Protocol), strings.ReplaceAll(r.Ports, "-", "to"),
		cmp.Or(logical(string(r.From)), logicalRange(r.CIDR)))
}

func (r rule) source() object {
	if r.From != "" {
		return object{"SourceSecurityGroupId": groupID(securityGroup(r.From))}
	}
	return cidr(r.CIDR)
}

// cidr is a range of addresses as the source of a rule.
func cidr(text string) object {
	if strings.Contains(text, ":") {
		return object{"CidrIpv6": text}
	}
	return object{"CidrIp": text}
}

// logicalRange converts a range of addresses to a part of a logical name.
func logicalRange(text string) string {
	return strings.NewReplacer(".", "x", ":", "x", "/", "x").Replace(text)
}
