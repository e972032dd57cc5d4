package role

// The tags of AutoScaling groups, machines and volumes. Their values are spelled as in role files.
const (
	// TagCluster is the name of the cluster, on groups (propagated to their machines) and on etcd's volumes.
	TagCluster = "KubernetesCluster"
	// TagRole is the roles of a group: "masters+etcd".
	TagRole = "Role"
	// TagEtcdMember is the name of an etcd member, on its volume, or on a machine whose volume moves with it.
	TagEtcdMember = "EtcdMember"
	// TagEtcdMembers is the names of all etcd members of the cluster, on its groups: "a b c" or "a,b,c".
	TagEtcdMembers = "EtcdMembers"
	// TagInstanceRole is the name of the IAM role of a group's machines, on the group alone: by it the masters know a
	// machine that proves its identity.
	TagInstanceRole = "InstanceRole"
	// TagNotices is what is done about EC2's notices of a group's machines, on the group alone, where that is not the usual:
	// "spot=drain scheduled=drain rebalance=cordon".
	TagNotices = "Notices"
	// TagGroup is the name of the group of a machine. AutoScaling sets it.
	TagGroup = "aws:autoscaling:groupName"
)

// EvictionHook is the lifecycle hook that holds a machine which is a node until its pods have moved away. The masters answer
// it, and not the DNS function.
const EvictionHook = "hardtack-evict"

// DrainHook is the lifecycle hook that holds a machine until its address has left DNS. The DNS function answers it.
const DrainHook = "hardtack-drain"

// AllHooks stands for every hook on termination but EvictionHook, where a hook is to be named.
const AllHooks = "*"
