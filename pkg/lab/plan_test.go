package lab

import (
	"testing"

	"gotest.tools/v3/assert"
)

// TestPlanBesideMachines: pods and Services have no addresses of the lab's own network.
func TestPlanBesideMachines(t *testing.T) {
	for text, want := range map[string]string{
		"":                                      "",
		"network: {podCIDR: 10.0.0.0/16}\n":     "",
		"network: {podCIDR: 10.1.0.0/16}\n":     "planning the lab: network.podCIDR 10.1.0.0/16 overlaps the network of the lab's machines, 10.1.0.0/24; next: write another range, or leave it out",
		"network: {serviceCIDR: 10.0.0.0/15}\n": "planning the lab: network.serviceCIDR 10.0.0.0/15 overlaps the network of the lab's machines, 10.1.0.0/24; next: write another range, or leave it out",
		"network: {serviceCIDR: 10.1.0.0/24}\n": "planning the lab: network.serviceCIDR 10.1.0.0/24 overlaps the network of the lab's machines, 10.1.0.0/24; next: write another range, or leave it out",
		"network: {serviceCIDR: 10.1.1.0/24}\n": "",
	} {
		_, err := planOf(testCluster + text)
		if want == "" {
			assert.NilError(t, err, text)
		} else {
			assert.Error(t, err, want)
		}
	}
}
