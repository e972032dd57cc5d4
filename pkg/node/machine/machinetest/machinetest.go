// Package machinetest has what tests about machines and clusters share.
package machinetest

import "github.com/hardtack/packer-plugin-hardtack/pkg/node/machine"

// Info is what the members of a default cluster of that name agree on.
func Info(cluster string, members ...string) machine.ClusterInfo {
	return machine.Config{
		Cluster: cluster, API: machine.API{Port: 443}, Etcd: machine.Etcd{Members: members},
		Network: machine.Network{ServiceCIDR: "10.96.0.0/16", PodCIDR: "10.244.0.0/14", DNSAddress: machine.ImageDNSAddress, DNSDomain: machine.ImageDNSDomain},
	}.Info()
}
