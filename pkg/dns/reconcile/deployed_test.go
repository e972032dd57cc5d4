package reconcile_test

import (
	"sync"
	"time"

	shippedtemplate "github.com/hardtack/packer-plugin-hardtack/lambda"
	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/shipped"
)

// functionTimeout is what the template of the DNS function gives a call: figures from a longer time would not be those of
// the deployed function.
var functionTimeout = sync.OnceValue(func() time.Duration {
	template, err := shipped.Parse(shippedtemplate.Template)
	if err != nil {
		panic(err)
	}
	d, err := template.Deploy(shipped.Stack{
		Parameters: map[string]string{shipped.ParamCluster: cluster, shipped.ParamZone: "Z1", shipped.ParamGroups: "demo-masters,demo-minions"},
	})
	if err != nil {
		panic(err)
	}
	return d.Function.Timeout
})
