package spec

import (
	_ "embed"
	"encoding/json"
	"path"
	"strings"
	"sync"

	"github.com/hardtack/packer-plugin-hardtack/pkg/node/machine"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// fieldTextsFile is what each of Hardtack's own fields is, by its path in which [] is any index. TestFieldTexts makes it from
// the fields' doc comments.
//
//go:embed fields.json
var fieldTextsFile []byte

var fieldTexts = sync.OnceValue(func() map[string]string {
	texts := map[string]string{}
	if err := json.Unmarshal(fieldTextsFile, &texts); err != nil {
		return nil // a test reads it
	}
	return texts
})

// nearest is the value of the table for a path, or for the nearest path above it that has one.
func nearest[T any](table map[string]T, path string) T {
	for ; path != ""; path = path[:max(0, strings.LastIndexAny(path, ".["))] {
		if value, ok := table[path]; ok {
			return value
		}
	}
	var none T
	return none
}

// becomes is where the values of Hardtack's own fields end up; a path also stands for all paths below it.
var becomes = map[string][]string{
	"name":                            {"CLUSTER_NAME in " + path.Join(role.Dir, role.Prefix+"<role>"), "the tag " + role.TagCluster + " of groups", "the records " + role.Role("<role>").Host(clusterParameter)},
	"version":                         {"nothing on machines: the image has the programs"},
	"arch":                            {"nothing on machines: the image is of it", "the default of groups[].aws.instanceType", "what hardtack stack apply asks of the channel's image, and hardtack lab up of its disk"},
	"store":                           {storeVariable + " in the role files, where it is not the name's"},
	"launchHook":                      {"launchHook in " + machine.Path + ", where it is not the usual one", "the groups' hook for launches"},
	"api.port":                        {"api.port in " + machine.Path, "API_PORT in " + role.Masters.File() + ", where it is not the image's"},
	"api.names":                       {"api.names in " + machine.Path, "names in the API server's certificate"},
	"api.internal":                    {"ApiInternal of the DNS function's stack: hardtack stack apply prints the command", "a name in the API server's certificate"},
	"api.zone":                        {"ApiZoneId and ApiZoneName of the DNS function's stack: hardtack stack apply prints the command", "a name in the API server's certificate"},
	"network.serviceCIDR":             {"network.serviceCIDR in " + machine.Path, "--service-cluster-ip-range of kube-apiserver and kube-controller-manager", "an address in the API server's certificate"},
	"network.podCIDR":                 {"network.podCIDR in " + machine.Path, "--cluster-cidr of kube-controller-manager", "clusterCIDR of kube-proxy", "Network of flannel"},
	"network.dnsAddress":              {"network.dnsAddress in " + machine.Path, "clusterDNS of the kubelet"},
	"network.dnsDomain":               {"network.dnsDomain in " + machine.Path, "clusterDomain of the kubelet"},
	"network.mtu":                     {"network.mtu in " + machine.Path},
	"network.timeServers":             {clockFile + ", and " + clockUnit + ", which has systemd-timesyncd read it"},
	"machines.sysctls":                {sysctlFile + ", and " + optionsUnit + ", which applies it before the daemons start"},
	"machines.kernelModules":          {modulesFile + " and " + modprobeFile + ", and " + optionsUnit + ", which loads them before the daemons start"},
	"machines.nofile":                 {"LimitNOFILE= in " + path.Join(unitDir, containerdUnit+".d", limitsFile) + ", where it is not the image's"},
	"machines.trustAnchors":           {anchorsDir + ", and " + optionsUnit + ", which adds them to /etc/ssl/certs before the daemons start"},
	"network.nonMasqueradeCIDRs":      {masqueradeFile + " of minions, and " + optionsUnit + ", which loads it"},
	"proxy":                           {"HTTP_PROXY, HTTPS_PROXY and NO_PROXY in the drop-ins " + proxyFile + " of " + containerdUnit + ", " + kubeletUnit + " and hardtack-*.service"},
	"registries":                      {registriesDir + "/<name>/hosts.toml and ca.crt of minions, which containerd reads at every pull"},
	"registries[].credentials":        {"a provider in " + providersDocument + " of minions, which the kubelet asks", "nothing else on machines: the credentials are in the store"},
	"podSecurity":                     {"enforce and warn of PodSecurity in " + admissionDocument + ", where it is not the image's"},
	"serviceAccounts.issuer":          {"the first --service-account-issuer of kube-apiserver, and --service-account-jwks-uri, where it is not the image's"},
	"serviceAccounts.acceptedIssuers": {"every further --service-account-issuer of kube-apiserver"},
	"serviceAccounts.publishTo":       {"nothing on machines: hardtack pki issuer publish writes there", pki.PublicIssuer + " in the store, once it has"},
	"addons":                          {"addons in " + machine.Path + " of masters, which apply the manifests of these names", "an AWS::IAM::Role for the pods of each that calls AWS", "tags of the groups that cluster-autoscaler scales", "--cloud-provider=external of kubelets and kube-controller-manager, with aws-cloud-controller-manager"},
	"addonImages":                     {"addonImages in " + machine.Path + " of masters, which write them into these manifests"},
	"groups[].name":                   {"the AutoScaling group " + clusterParameter + "-<name>"},
	"groups[].roles":                  {"the role files " + path.Join(role.Dir, role.Prefix+"<role>"), "the tag " + role.TagRole + " of the group", "the records " + role.Role("<role>").Host(clusterParameter), "the security groups of the roles: a role of one's own is one that a unit of the image names, and its ports are those that its units open (hardtack roles UNITS lists both)"},
	"groups[].size":                   {"the AutoScaling group's size"},
	"groups[].members":                {"etcd.members of the cluster's own facts in its store", "the tags " + role.TagEtcdMembers + " and " + role.TagEtcdMember + " of the groups", "the records " + role.MemberHost(clusterParameter, "<member>"), "ETCD_NAME and ETCD_INITIAL_CLUSTER, which the machine's agent sets", memberVariable + " in " + role.Etcd.File() + ", outside a cloud"},
	"groups[].cpus":                   {"nothing on machines"},
	"groups[].memory":                 {"nothing on machines"},
	"groups[].node.naming":            {"node.naming in " + machine.Path},
	"groups[].node.labels":            {"node.labels in " + machine.Path},
	"groups[].node.taints":            {"node.taints in " + machine.Path},
	"groups[].node.maxPods":           {"node.maxPods in " + machine.Path},
	"groups[].node.podsReachMetadata": {openMetadata + ", which takes the place of the image's drop-in of the pods' slice"},
	"etcd.storage":                    {storageVariable + " in " + role.Etcd.File() + ", unless it is machine", "an AWS::EC2::Volume for each member, where it is volume, and its group in the volume's zone"},
	"etcd.size":                       {"Size of the members' volumes"},
	"etcd.iops":                       {"Iops of the members' volumes"},
	"etcd.throughput":                 {"Throughput of the members' volumes"},
	"etcd.key":                        {"KmsKeyId of the members' volumes"},
	"etcd.disks":                      {diskVariable + " in " + role.Etcd.File()},
	"etcd.backup.to":                  {backupVariable + " in " + role.Etcd.File() + ", unless it is none", "an AWS::S3::Bucket and its policy, where it is stack", "s3:PutObject, s3:GetObject and s3:ListBucket in the policy of the members' instance roles"},
	"etcd.backup.every":               {backupEveryVariable + " in " + role.Etcd.File() + ", where it is not the usual one"},
	"etcd.backup.keep":                {"the lifecycle rule of the stack's bucket"},
	"etcd.backup.key":                 {"BucketEncryption of the stack's bucket, where it is stack", "kms:GenerateDataKey and kms:Decrypt in the policy of the members' instance roles"},
	"aws.channel":                     {"the default of the stack's parameter ImageId"},
	"aws.loadBalancer":                {"a load balancer, its listener and its targets, or nothing"},
	"aws.key":                         {"KmsKeyId in every launch template"},
	"aws.secretsKey":                  {"public/secrets-key in the store, KeyId of each secret there, and kms:Decrypt in the policy of every instance role"},
	"aws.podRoles":                    {"an AWS::IAM::Role each, and an AWS::IAM::OIDCProvider", "the stack's outputs PodRole<Name>"},
	"aws.tags":                        {"tags of the stack, and of every resource that takes any", "tags of the machines and their disks, by PropagateAtLaunch and TagSpecifications"},
	"aws.apiAccess":                   {"a rule for each range in the security group of the masters, or of the load balancer", "dualstack for the load balancer, where a range is of IPv6"},
	"groups[].aws.iops":               {"Iops in the group's launch template"},
	"groups[].aws.throughput":         {"Throughput in the group's launch template"},
	"groups[].aws.types":              {"MixedInstancesPolicy of the AutoScaling group: its overrides, in this order"},
	"groups[].aws.spot":               {"MixedInstancesPolicy of the AutoScaling group: its distribution"},
	"groups[].aws.spot.rebalance":     {"CapacityRebalance of the AutoScaling group"},
	"groups[].aws.securityGroups":     {"SecurityGroupIds in the group's launch template"},
	"groups[].aws.policies":           {"ManagedPolicyArns of the group's instance role"},
	"groups[].aws.allow":              {"the policy own of the group's instance role"},
	"groups[].aws.sessionManager":     {"ssmmessages and ssm:UpdateInstanceInformation in the policy of the group's instance role", "nothing in the image, which has no agent"},
	"groups[].aws.tags":               {"tags of the AutoScaling group, which its machines get, of their disks and network interfaces, and of the instance role"},
	"groups[].aws.maxLifetime":        {"MaxInstanceLifetime of the AutoScaling group, in seconds"},
	"groups[].aws.metrics":            {"MetricsCollection of the AutoScaling group"},
	"groups[].aws.instanceType":       {"InstanceType in the group's launch template"},
	"groups[].aws.volume":             {"VolumeSize in the group's launch template"},
	"groups[].aws.max":                {"the AutoScaling group's MaxSize"},
	"groups[].aws.drainTimeout":       {"HeartbeatTimeout of the group's hook " + role.EvictionHook},
	"groups[].aws.notices":            {"the tag " + role.TagNotices + " of the group, where it is not the usual"},
	"fileAssets":                      {"the file in the user data of the groups that it is for"},
	"hooks":                           {"units in " + unitDir + ", by the user data of the groups that they are for"},
	"additionalUserData":              {"MIME parts of the user data of the groups that they are for"},
}
