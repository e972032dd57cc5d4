package template_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
	"github.com/hardtack/packer-plugin-hardtack/pkg/spec"
)

// open are the rules of one role as deploy.py prints them, except those for clients outside.
func open(c *spec.Complete, r role.Role) []string {
	var rules []string
	for _, p := range r.Ports() {
		number := p.Number
		if r == role.Masters && number == role.DefaultAPIPort {
			number = c.Cluster.API.Port
		}
		for _, from := range p.From {
			rules = append(rules, fmt.Sprintf("%s %d-%d from %s-%s", p.Protocol, number, number, c.Cluster.Name, from))
		}
	}
	for _, o := range openings(c) {
		if o.Role != "" && o.Role != r {
			continue
		}
		for _, from := range o.From {
			if from != "nobody" {
				rules = append(rules, fmt.Sprintf("%s %d-%d from %s-%s", o.Protocol, o.First, o.Last, c.Cluster.Name, from))
			}
		}
		for _, from := range o.Ranges {
			if strings.Contains(from, ":") {
				continue // moto's CloudFormation makes no rule of a range of IPv6
			}
			rules = append(rules, fmt.Sprintf("%s %d-%d from %s", o.Protocol, o.First, o.Last, from))
		}
	}
	slices.Sort(rules)
	return slices.Compact(rules)
}

// Every port that is open is documented, and every port that is documented for other machines is open.
func TestSecurityGroupsAreTheDocumentedPorts(t *testing.T) {
	for _, name := range deployments {
		t.Run(name, func(t *testing.T) {
			file, _, _ := strings.Cut(name, "=")
			c, d := document(t, file), deployed(t, name)
			groups := 0
			for _, r := range append(role.All(), "ingress") {
				if r == "ingress" && len(openings(c)) == 0 {
					continue
				}
				got, there := d.Ingress[c.Cluster.Name+"-"+string(r)]
				if lone := r == role.Etcd && len(c.Groups[0].Members) == 0; lone {
					assert.Assert(t, !there, "a lone etcd has a security group")
					continue
				}
				groups++
				want := open(c, r)
				if r == role.Masters {
					source := "10.0.0.0/8"
					if c.Cluster.AWS.LoadBalancer != spec.LoadBalancerNone {
						source = c.Cluster.Name + "-api"
					}
					want = append(want, fmt.Sprintf("tcp %d-%d from %s", c.Cluster.API.Port, c.Cluster.API.Port, source))
					slices.Sort(want)
				}
				assert.DeepEqual(t, got, want)
			}
			if c.Cluster.AWS.LoadBalancer != spec.LoadBalancerNone {
				groups++
				assert.DeepEqual(t, d.Ingress[c.Cluster.Name+"-api"], []string{fmt.Sprintf("tcp %d-%d from 10.0.0.0/8", c.Cluster.API.Port, c.Cluster.API.Port)})
			}
			assert.Equal(t, len(d.Ingress), groups)
		})
	}
}
