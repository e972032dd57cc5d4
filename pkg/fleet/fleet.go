// Package fleet reads which machines a cluster has: from AutoScaling and EC2, from a file, or from
// what a command prints.
//
// Its rule: a whole reading or an error. A page that is missing, a file that is half right or a
// command that fails gives no fleet, since a machine that was not read would be taken out of DNS.
package fleet

// The tags that groups, machines and volumes carry. Role and cluster are the role file's own words.
const (
	// TagCluster is on groups (propagated to their machines) and on etcd's volumes.
	TagCluster = "KubernetesCluster"
	// TagRole is a group's role; "masters+etcd" are two.
	TagRole = "Role"
	// TagEtcdMember is the member's name on its volume, or on a machine whose volume moves with it.
	TagEtcdMember = "EtcdMember"
	// TagEtcdMembers is every member of the cluster's etcd, on its groups: "a b c" or "a,b,c".
	TagEtcdMembers = "EtcdMembers"
)
