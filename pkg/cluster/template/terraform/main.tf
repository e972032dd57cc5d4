# A Hardtack cluster's zone, groups, roles and security groups: the same as the CloudFormation template of
# `hardtack stack render`. What the cluster's document says is in cluster.json, which `hardtack stack terraform` writes
# beside this file: write both again when the document changes, and do not edit them.

locals {
  spec    = jsondecode(file("${path.module}/cluster.json"))
  zone_id = var.zone_id != null ? var.zone_id : aws_route53_zone.this[0].zone_id
  tags    = merge(local.spec.tags, { KubernetesCluster = local.spec.cluster })
  # The policies' ARNs have CloudFormation's words for where they are.
  policies = {
    for name, group in local.spec.groups : name => replace(replace(replace(
      jsonencode({ Version = "2012-10-17", Statement = group.statements }),
      "$${AWS::Partition}", data.aws_partition.here.partition),
      "$${AWS::Region}", data.aws_region.here.id),
    "$${AWS::AccountId}", data.aws_caller_identity.here.account_id)
  }
  pod_statements = {
    for name, role in local.spec.pods.roles : name => replace(replace(replace(
      jsonencode({ Version = "2012-10-17", Statement = role.statements }),
      "$${AWS::Partition}", data.aws_partition.here.partition),
      "$${AWS::Region}", data.aws_region.here.id),
    "$${AWS::AccountId}", data.aws_caller_identity.here.account_id)
  }
}

data "aws_partition" "here" {}

data "aws_region" "here" {}

data "aws_caller_identity" "here" {}

data "aws_ssm_parameter" "image" {
  name = local.spec.aws.image_parameter
}
