package stack_test

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
	"github.com/hardtack/packer-plugin-hardtack/pkg/spec"
)

// open are the rules of one role as deploy.py words them, but for clients outside.
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
	slices.Sort(rules)
	return rules
}

// Every port that is let in is documented, and every one that is documented for other machines is let in.
func TestSecurityGroupsAreTheDocumentedPorts(t *testing.T) {
	for _, name := range deployments {
		t.Run(name, func(t *testing.T) {
			file, _, _ := strings.Cut(name, "=")
			c, d := document(t, file), deployed(t, name)
			groups := 0
			for _, r := range role.All() {
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

// The README's table has every port of each role, and no other.
func TestReadmeHasThePorts(t *testing.T) {
	text, err := os.ReadFile("../../README.md")
	assert.NilError(t, err)
	number := regexp.MustCompile(`\b[0-9]{3,5}\b`)
	local := regexp.MustCompile(`127\.0\.0\.[0-9]+`)
	for _, r := range role.All() {
		row := regexp.MustCompile(`(?m)^\| ` + string(r) + ` \| ([0-9].*)$`).FindSubmatch(text)
		assert.Assert(t, row != nil, "no row of %s", r)
		got := map[int]bool{}
		for _, n := range number.FindAllString(local.ReplaceAllString(string(row[1]), ""), -1) {
			port, err := strconv.Atoi(n)
			assert.NilError(t, err)
			got[port] = true
		}
		want := map[int]bool{}
		for _, p := range r.Ports() {
			want[p.Number] = true
		}
		assert.DeepEqual(t, got, want)
	}
}
