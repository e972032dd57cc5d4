package lab

// DefaultCluster is the default cluster document of a lab: one control plane, which is an etcd member too, and two
// minions.
const DefaultCluster = `apiVersion: hardtack.dev/v1
kind: Cluster
name: demo
`
