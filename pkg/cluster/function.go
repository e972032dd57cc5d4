package cluster

import (
	"context"
	"strconv"
	"strings"

	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/shipped"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// FunctionParameters are the parameters of the DNS function's stack that follow from the document, each as NAME=VALUE as a shell and then the
// AWS SAM CLI read it, for a private zone and groups. Those of the API's names are left out where the document asks for none, as the template's
// defaults are. With all they are there too: of a stack that there is, a deployment keeps the values of the parameters that are left out.
func (c *Cluster) FunctionParameters(zoneID string, groups []string, all bool) []string {
	out := []string{
		shipped.ParamCluster + "=" + c.name, shipped.ParamZone + "=" + zoneID, shipped.ParamSuffix + "=" + role.Zone, shipped.ParamGroups + "=" + strings.Join(groups, ","),
	}
	for _, p := range c.apiParameters() {
		switch {
		case p.value == "" && all:
			out = append(out, p.name+`='""'`) // the SAM CLI takes an empty value in its own quotes alone
		case p.value != p.none || all:
			out = append(out, p.name+"="+p.value)
		}
	}
	return out
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
