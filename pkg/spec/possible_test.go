package spec_test

import (
	"strings"
	"testing"

	"gotest.tools/v3/assert"
)

// Values that are right by themselves, and with which no machine works, are found with what to write.
func TestImpossible(t *testing.T) {
	const head = "apiVersion: hardtack.dev/v1\nkind: Cluster\nname: demo\n"
	const apart = "groups:\n- {name: masters, roles: [masters]}\n- {name: etcd, roles: [etcd], members: [a]}\n"
	for text, want := range map[string]string{
		// Ports of the same machine; etcd's are free on a master without etcd.
		"api: {port: 2379}\n":         "cluster.yaml:4: api.port: 2379 is the port of etcd on the same machine (write another, such as 6443)",
		"api: {port: 2379}\n" + apart: "",
		"api: {port: 10257}\n":        "cluster.yaml:4: api.port: 10257 is the port of kube-controller-manager on the same machine (write another, such as 6443)",
		"api: {port: 10250}\n":        "",
		"api: {port: 10250}\ngroups: [{name: all, roles: [masters, etcd, minions]}]\n": "cluster.yaml:4: api.port: 10250 is the port of kubelet on the same machine (write another, such as 6443)",
		"api: {port: 53}\n":   "cluster.yaml:4: api.port: 53 is the port of systemd-resolved on the same machine (write another, such as 6443)",
		"api: {port: 8472}\n": "",
		"api: {port: 6443}\n": "",
		// Hooks of one group.
		"launchHook: hardtack-drain\n": `cluster.yaml:4: launchHook: "hardtack-drain" is the name of the stack's own hook for machines that end, and a group has each name once (leave it out, or write another name)`,
		"launchHook: hardtack-evict\n": `cluster.yaml:4: launchHook: "hardtack-evict" is the name of the stack's own hook for machines that end, and a group has each name once (leave it out, or write another name)`,
		"launchHook: hardtack-ready\n": "",
		// Ranges that machines need.
		"network: {podCIDR: 169.254.0.0/16}\n":     "cluster.yaml:4: network.podCIDR: 169.254.0.0/16 overlaps 169.254.0.0/16: link-local addresses, with the metadata service and the clock at AWS (a private range, as in 10.0.0.0/8)",
		"network: {podCIDR: 168.0.0.0/7}\n":        "cluster.yaml:4: network.podCIDR: /7 is not between /8 and /24",
		"network: {podCIDR: 169.0.0.0/8}\n":        "cluster.yaml:4: network.podCIDR: 169.0.0.0/8 overlaps 169.254.0.0/16: link-local addresses, with the metadata service and the clock at AWS (a private range, as in 10.0.0.0/8)",
		"network: {serviceCIDR: 127.0.0.0/16}\n":   "cluster.yaml:4: network.serviceCIDR: 127.0.0.0/16 overlaps 127.0.0.0/8: each machine's own addresses (a private range, as in 10.0.0.0/8)",
		"network: {podCIDR: 224.0.0.0/16}\n":       "cluster.yaml:4: network.podCIDR: 224.0.0.0/16 overlaps 224.0.0.0/4: multicast (a private range, as in 10.0.0.0/8)",
		"network: {podCIDR: 100.64.0.0/16}\n":      "",
		`network: {podCIDR: "fd00:1::/48"}` + "\n": `cluster.yaml:4: network.podCIDR: "fd00:1::/48" is a range of IPv6 addresses: neither IPv6 nor dual stack is supported (write one of IPv4 addresses, such as 10.96.0.0/16)`,
		// Cloud providers that are gone.
		"kubelet: {flags: {cloud-provider: aws}}\n":               `cluster.yaml:4: kubelet.flags.cloud-provider: kubelet v1.36.3 has no cloud provider "aws" any more (leave it out, or write external and run the cloud's own controller manager)`,
		"kubeControllerManager: {flags: {cloud-provider: aws}}\n": `cluster.yaml:4: kubeControllerManager.flags.cloud-provider: kube-controller-manager v1.36.3 has no cloud provider "aws" any more (leave it out, or write external and run the cloud's own controller manager)`,
		"kubelet: {flags: {cloud-provider: external}}\n":          "",
		// What follows from the cluster's own fields.
		"kubeAPIServer: {flags: {secure-port: 6443}}\n":                                         "cluster.yaml:4: kubeAPIServer.flags.secure-port: follows from api.port, on which all machines of the cluster have to agree (leave it out, and set api.port)",
		"kubeAPIServer: {flags: {secure-port: 443}}\n":                                          "",
		"kubeControllerManager: {flags: {cluster-cidr: 10.9.0.0/16}}\n":                         "cluster.yaml:4: kubeControllerManager.flags.cluster-cidr: follows from network.podCIDR, on which all machines of the cluster have to agree (leave it out, and set network.podCIDR)",
		"flannel: {config: {Network: 10.9.0.0/16}}\n":                                           "cluster.yaml:4: flannel.config.Network: follows from network.podCIDR, on which all machines of the cluster have to agree (leave it out, and set network.podCIDR)",
		"kubelet: {config: {clusterDNS: [10.0.0.10]}}\n":                                        "cluster.yaml:4: kubelet.config.clusterDNS: follows from network.dnsAddress, on which all machines of the cluster have to agree (leave it out, and set network.dnsAddress)",
		"kubelet: {config: {clusterDNS: [10.96.0.10, 10.0.0.10]}}\n":                            "",
		"network: {serviceCIDR: 10.97.0.0/16}\nkubelet: {config: {clusterDNS: [10.97.0.10]}}\n": "",
		// Where daemons are asked.
		"kubelet: {config: {healthzPort: 10999}}\n":                                         `cluster.yaml:4: kubelet.config.healthzPort: is "10999", but a machine is ready only when it answers at 127.0.0.1:10248 (leave it out)`,
		"kubelet: {config: {healthzPort: 10248, port: 10250}}\n":                            "",
		"kubelet: {config: {healthzPort: null, address: null}}\n":                           "",
		"kubelet: {config: {healthzBindAddress: 10.0.0.7}}\n":                               `cluster.yaml:4: kubelet.config.healthzBindAddress: is "10.0.0.7", but a machine is ready only when it answers at 127.0.0.1:10248 (leave it out)`,
		"kubelet: {config: {healthzBindAddress: 0.0.0.0, address: \"::\"}}\n":               "",
		"kubelet: {config: {port: 10999}}\n":                                                `cluster.yaml:4: kubelet.config.port: is "10999", but the security groups open port 10250 on every address (leave it out)`,
		"etcd: {flags: {listen-metrics-urls: \"http://127.0.0.1:9999\"}}\n":                 `cluster.yaml:4: etcd.flags.listen-metrics-urls: is "http://127.0.0.1:9999", but a machine is ready only when it answers at 127.0.0.1:2381 (leave it out)`,
		"etcd: {flags: {listen-metrics-urls: null}}\n":                                      `cluster.yaml:4: etcd.flags.listen-metrics-urls: is "", but a machine is ready only when it answers at 127.0.0.1:2381 (leave it out)`,
		"etcd: {flags: {listen-metrics-urls: \"http://127.0.0.1:2381\"}}\n":                 "",
		"etcd: {flags: {listen-metrics-urls: \"https://127.0.0.1:2381\"}}\n":                `cluster.yaml:4: etcd.flags.listen-metrics-urls: is "https://127.0.0.1:2381", but a machine is ready only when it answers at 127.0.0.1:2381 (leave it out)`,
		"etcd: {flags: {listen-metrics-urls: \"http://[::1]:2381,http://0.0.0.0:2381\"}}\n": "",
		"etcd: {flags: {listen-client-http-urls: \"http://127.0.0.1:9999\"}}\n":             "cluster.yaml:4: etcd.flags.listen-client-http-urls: --listen-client-http-urls follows from the members' names: records, certificates and the machine's agent have that name and these addresses too (leave it out)",
		"kubeAPIServer: {flags: {bind-address: 127.0.0.1}}\n":                               `cluster.yaml:4: kubeAPIServer.flags.bind-address: is "127.0.0.1", but machines and clients ask port 443 on every address (leave it out)`,
		"kubeControllerManager: {flags: {secure-port: 10999}}\n":                            `cluster.yaml:4: kubeControllerManager.flags.secure-port: is "10999", but a master hands on its metrics from 127.0.0.1:10257 (leave it out)`,
		"kubeControllerManager: {flags: {secure-port: 10257, bind-address: 0.0.0.0}}\n":     "",
		"kubeScheduler: {flags: {secure-port: 0}}\n":                                        `cluster.yaml:4: kubeScheduler.flags.secure-port: is "0", but a master hands on its metrics from 127.0.0.1:10259 (leave it out)`,
		"konnectivityServer: {flags: {agents: \":9132\", metrics: \"0.0.0.0:8133\"}}\n":     `cluster.yaml:4: konnectivityServer.flags.agents: is ":9132", but the security groups open port 8132 on every address (leave it out)`,
		"konnectivityAgent: {flags: {port: 8132}}\n":                                        "",
		"kubeProxy: {config: {healthzBindAddress: \"127.0.0.1:10256\"}}\n":                  `cluster.yaml:4: kubeProxy.config.healthzBindAddress: is "127.0.0.1:10256", but the security groups open port 10256 on every address (leave it out)`,
		"flannel: {config: {Backend: {Port: 4789}}}\n":                                      `cluster.yaml:4: flannel.config.Backend.Port: is "4789", but the security groups open port 8472 on every address (leave it out)`,
		"flannel: {config: {Backend: {Port: 8472}}}\n":                                      "",
		// An even number of members, which is no error: there are two while a third comes.
		"groups: [{name: all, roles: [masters, etcd], members: [a, b]}]\n":       "cluster.yaml:4: groups[0].members: warning: an etcd of 2 members works without 0 of them, as one of 1 does (name 1 or 3)",
		"groups: [{name: all, roles: [masters, etcd], members: [a, b, c, d]}]\n": "cluster.yaml:4: groups[0].members: warning: an etcd of 4 members works without 1 of them, as one of 3 does (name 3 or 5)",
		"groups: [{name: all, roles: [masters, etcd], members: [a, b, c]}]\n":    "",
		// Numbers that are none.
		"groups: [{name: all, roles: [masters, etcd], size: 2.5}]\n":       `cluster.yaml:4: groups[0].size: "2.5" is not a whole number (it is how many machines the group keeps, 1 if it is not set; with members it is their number)`,
		"groups: [{name: all, roles: [masters, etcd], memory: 2GiB}]\n":    `cluster.yaml:4: groups[0].memory: "2GiB" is not a whole number (it is how many MiB of memory a lab gives each machine)`,
		"groups: [{name: all, roles: [masters, etcd], size: \"1\"}]\n":     `cluster.yaml:4: groups[0].size: "1" is not a whole number (it is how many machines the group keeps, 1 if it is not set; with members it is their number)`,
		"groups: [{name: all, roles: [masters, etcd], aws: {max: 9.9}}]\n": `cluster.yaml:4: groups[0].aws.max: "9.9" is not a whole number (it is how many machines the group may be scaled out to, and may have while its minions are refreshed; at least its size)`,
		"api: {port: 443.7}\n":  `cluster.yaml:4: api.port: "443.7" is not a whole number (it is the TCP port of every API server)`,
		"api: {port: 6443.0}\n": "",
		"etcd: {size: .5}\n":    `cluster.yaml:4: etcd.size: ".5" is not a whole number (it is the size of a member's volume in GiB. Beside the database it holds a second one while it is defragmented, and a third one while a backup is tried)`,
	} {
		var lines []string
		for _, p := range findings(t, head+text) {
			lines = append(lines, p.String())
		}
		assert.Equal(t, strings.Join(lines, "\n"), want, text)
	}
}
