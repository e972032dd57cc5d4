package role

import "strconv"

// Zone is the DNS zone in which a machine looks for its cluster.
const Zone = "k8s"

// MemberPrefix begins the DNS label of one etcd member; its name follows: "etcd-a".
const MemberPrefix = string(Etcd) + "-"

// Domain is the DNS domain of a cluster's machines: "demo.k8s".
func Domain(cluster string) string { return cluster + "." + Zone }

// Host is the DNS name of a cluster's machines with the role: "masters.demo.k8s".
func (r Role) Host(cluster string) string { return string(r) + "." + Domain(cluster) }

// Shard is the DNS label of one shard of a record that has too many addresses for one set: "minions-7".
func (r Role) Shard(n int) string { return string(r) + "-" + strconv.Itoa(n) }

// MemberHost is the DNS name of one etcd member: "etcd-a.demo.k8s".
func MemberHost(cluster, member string) string { return MemberPrefix + member + "." + Domain(cluster) }
