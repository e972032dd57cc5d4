// Package stack turns a cluster's complete configuration into one CloudFormation template, and says what its control
// parts cost.
//
// Its rule: the template is a pure function of the document and the public CA. The same input gives the same bytes,
// nothing secret is in it, and what a machine is told is what `hardtack userdata` prints, byte for byte.
//
// The template's resource types:
//
//	AWS::Route53::HostedZone, AWS::Route53::RecordSet
//	AWS::EC2::SecurityGroup, AWS::EC2::SecurityGroupIngress, AWS::EC2::LaunchTemplate
//	AWS::IAM::Role, AWS::IAM::InstanceProfile
//	AWS::AutoScaling::AutoScalingGroup (with LifecycleHookSpecificationList)
//	AWS::ElasticLoadBalancingV2::LoadBalancer, ::TargetGroup, ::Listener (where aws.loadBalancer is not none)
//
// and its intrinsic functions, always written in their long form: Ref (also of AWS::Region, AWS::NoValue), Fn::GetAtt (as
// a list of two), Fn::Sub (one text; also AWS::Partition, AWS::Region, AWS::AccountId, AWS::URLSuffix), Fn::If, Fn::Equals,
// Fn::Not, Fn::Select. Resources have Condition, DeletionPolicy (RetainExceptOnCreate) and UpdateReplacePolicy.
// Parameters are of the types String, AWS::EC2::VPC::Id, List<AWS::EC2::Subnet::Id> and
// AWS::SSM::Parameter::Value<AWS::EC2::Image::Id>. A test compares this list with what is rendered.
//
// What is decided here, and why:
//
//   - The image is a parameter that CloudFormation resolves at each update, and not `resolve:ssm:` in the launch template,
//     which EC2 resolves at each launch: so a new image is a new version of the template, which a refresh rolls out and a
//     rollback takes back, and no machine starts from it by chance before that.
//   - Lifecycle hooks are part of their group. As resources of their own they would be made after it, and after its first
//     machines.
//   - The parameter Machines keeps all groups empty: while the zone is prepared and the Lambda is not there yet, and again
//     before the stack is deleted. CloudFormation cannot lower the SOA minimum of a zone, since it only creates record
//     sets, and a zone has its SOA from the start: `hardtack dns zone prepare` does it.
//   - The placeholders are only made with the zone, and stay when the stack goes: from the first sweep on the records are
//     the Lambda's, and deleting what no longer has these values would fail.
//   - A security group a role, and a machine has those of all its roles. What is let in is role.Ports.
//   - An etcd member is told by a tag of its machine. Its disk is the machine's own: no volume outlives it yet.
package stack
