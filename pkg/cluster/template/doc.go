// Package template renders a cluster's complete configuration as one CloudFormation template or Terraform module, and
// computes the cost of its control parts.
//
// Its rule: the template is a pure function of the document and the public CA. The same input gives the same bytes, it
// contains no secrets, and the user data is the output of `hardtack userdata`, byte for byte.
//
// The template's resource types:
//
//	AWS::Route53::HostedZone, AWS::Route53::RecordSet
//	AWS::EC2::SecurityGroup, AWS::EC2::SecurityGroupIngress, AWS::EC2::LaunchTemplate
//	AWS::EC2::Volume (where etcd.storage is volume)
//	AWS::S3::Bucket, AWS::S3::BucketPolicy (where etcd.backup.to is stack)
//	AWS::IAM::Role, AWS::IAM::InstanceProfile
//	AWS::IAM::OIDCProvider (where there are aws.podRoles)
//	AWS::AutoScaling::AutoScalingGroup (with LifecycleHookSpecificationList)
//	AWS::ElasticLoadBalancingV2::LoadBalancer, ::TargetGroup, ::Listener (where aws.loadBalancer is not none)
//	AWS::KMS::Key, AWS::KMS::Alias (in a template of their own, where aws.secretsKey is stack)
//
// and its intrinsic functions, always written in their long form: Ref (also of AWS::Region, AWS::NoValue), Fn::GetAtt (as
// a list of two), Fn::Sub (one text; also AWS::Partition, AWS::Region, AWS::AccountId, AWS::URLSuffix), Fn::If, Fn::Equals,
// Fn::Not, Fn::Select. Resources have Condition, DeletionPolicy (RetainExceptOnCreate) and UpdateReplacePolicy.
// Parameters are of the types String, AWS::EC2::VPC::Id, List<AWS::EC2::Subnet::Id>,
// List<AWS::EC2::AvailabilityZone::Name> and AWS::SSM::Parameter::Value<AWS::EC2::Image::Id>. A test compares this list with
// a rendered template.
//
// The decisions, and their reasons:
//
//   - The image is a parameter that CloudFormation resolves at each update. With `resolve:ssm:` in the launch template EC2
//     would resolve it at each launch. A new image is therefore a new version of the template, which a refresh rolls out
//     and a rollback takes back, and no machine starts from it by chance before that.
//   - Lifecycle hooks are part of their group. As separate resources they would be made after the group and its first
//     machines.
//   - The parameter Machines keeps all groups empty until the zone is prepared and the DNS function exists, and again
//     before the stack is deleted. CloudFormation cannot lower the SOA minimum of a zone, since it only creates record
//     sets, and a zone has its SOA from the start: `hardtack dns zone prepare` does it.
//   - The placeholders are made together with the zone, and stay when the stack is deleted: after the first sweep the
//     records belong to the function, and CloudFormation could not delete records whose values have changed.
//   - Each role has a security group, and a machine has those of all its roles. They let in role.Ports.
//   - A tag of the machine names its etcd member, and a volume for each member has the same tag. It is no part of the launch
//     template, since it outlives machines: the machine attaches it. The member's group is pinned to the subnet of the
//     volume's zone. CloudFormation has no function for the zone of a subnet, so that the zone is a parameter too, which
//     `hardtack stack apply` fills in.
//   - The bucket of etcd's backups has a name that machines know without asking: the account's number and the region are in
//     it. It is versioned, and its policy refuses every write that could replace an object. Members cannot delete.
//   - A member's volume has DeletionPolicy RetainExceptOnCreate. With Retain, a stack whose creation fails would leave empty
//     volumes behind, and the next attempt would make a second one for each member: a machine takes neither.
package template
