package awsfake

import (
	"maps"
	"slices"
	"strings"
)

// balancing is the part of Elastic Load Balancing (version 2015-12-01) that lists what stacks have made.
type balancing struct{ account *Account }

// balancerPage is the most that one answer lists (API reference, DescribeLoadBalancers and DescribeTargetGroups: PageSize).
const balancerPage = 400

func (b balancing) actions() actions {
	return actions{
		"DescribeLoadBalancers": strict(b.balancers, "PageSize", "Marker"),
		"DescribeTargetGroups":  strict(b.targets, "PageSize", "Marker"),
	}
}

// serve carries out one call of its Query protocol.
func (b balancing) serve(c *call) (any, error) { return b.actions().serve(c) }

// needs: lists support no resource.
func (balancing) needs(c *call) []need {
	return []need{{action: "elasticloadbalancing:" + c.Action, arn: "*"}}
}

// arnPage is a page of ARNs in their order.
func arnPage(p params, all map[string]bool) ([]string, string, error) {
	size, err := p.integer("PageSize", balancerPage)
	if err != nil {
		return nil, "", err
	}
	if size < 1 || size > balancerPage {
		return nil, "", malformed("1 validation error detected: Value '%d' at 'pageSize' failed to satisfy constraint: Member must be between 1 and %d", size, balancerPage)
	}
	return page(slices.Sorted(maps.Keys(all)), size, p.get("Marker"))
}

// balancingName is the name in an ARN of Elastic Load Balancing, which ends in name/id.
func balancingName(arn string) string {
	parts := strings.Split(arn, "/")
	return parts[len(parts)-2]
}

func (b balancing) balancers(p params) (any, error) {
	type balancer struct{ LoadBalancerArn, LoadBalancerName, Type string }
	arns, marker, err := arnPage(p, b.account.regional.cloudformation.balancers.balancers)
	var list []balancer
	for _, arn := range arns {
		list = append(list, balancer{arn, balancingName(arn), "network"})
	}
	return struct {
		List   []balancer `xml:"LoadBalancers>member"`
		Marker string     `xml:"NextMarker,omitempty"`
	}{list, marker}, err
}

func (b balancing) targets(p params) (any, error) {
	type target struct{ TargetGroupArn, TargetGroupName string }
	arns, marker, err := arnPage(p, b.account.regional.cloudformation.targets)
	var list []target
	for _, arn := range arns {
		list = append(list, target{arn, balancingName(arn)})
	}
	return struct {
		List   []target `xml:"TargetGroups>member"`
		Marker string   `xml:"NextMarker,omitempty"`
	}{list, marker}, err
}
