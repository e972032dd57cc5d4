package cluster

import (
	"context"
	"strconv"
	"strings"

	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/shipped"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// FunctionParameters are the parameters of the DNS function's stack that follow from the document, each as NAME=VALUE, for a private zone
// and groups. Those of the API's names are left out where the document asks for none, as the template's defaults are.
func (c *Cluster) FunctionParameters(zoneID string, groups []string) []string {
	all := []string{
		shipped.ParamCluster + "=" + c.name, shipped.ParamZone + "=" + zoneID, shipped.ParamSuffix + "=" + role.Zone, shipped.ParamGroups + "=" + strings.Join(groups, ","),
	}
	for _, p := range c.apiParameters() {
		if p.value != p.none {
			all = append(all, p.name+"="+p.value)
		}
	}
	return all
}

// apiParameter is a parameter about the API's names, and its value where the document asks for none.
type apiParameter struct{ name, value, none string }

func (c *Cluster) apiParameters() []apiParameter {
	api := c.config.Document.Cluster.API
	return []apiParameter{
		{shipped.ParamAPIInternal, strconv.FormatBool(api.Internal), "false"},
		{shipped.ParamAPIZone, api.Zone.ID, ""}, {shipped.ParamAPISuffix, api.Zone.Name, ""},
	}
}

// functionBehind reports whether the DNS function's stack keeps other names of the API than the document asks for. Of a stack that is not
// there, has another name or may not be read, nothing is known.
func (c *Cluster) functionBehind(ctx context.Context) bool {
	now, err := c.stacks.Describe(ctx, FunctionStack(c.name))
	if err != nil || !now.Made() {
		return false
	}
	for _, p := range c.apiParameters() {
		if have, ok := now.Parameters[p.name]; have != p.value && (ok || p.value != p.none) {
			return true
		}
	}
	return false
}
