# The key of a cluster's secrets in Parameter Store: the same as the stack that `hardtack pki create` makes where the
# cluster's document says aws.secretsKey: stack. Apply it before `hardtack pki create`, and keep it as long as the secrets:
# without it they are lost.

locals {
  spec = jsondecode(file("${path.module}/cluster.json"))
}

terraform {
  required_version = ">= 1.5"
  required_providers {
    aws = {
      source  = "hashicorp/aws"
      version = ">= 5.40"
    }
  }
}

data "aws_partition" "here" {}

data "aws_caller_identity" "here" {}

# Its policy names the account's root alone, so that IAM policies decide.
resource "aws_kms_key" "secrets" {
  description         = "the secrets of the cluster ${local.spec.cluster} in Parameter Store"
  enable_key_rotation = true
  policy = jsonencode({
    Version = "2012-10-17"
    Statement = [{
      Sid       = "PoliciesOfTheAccountDecide"
      Effect    = "Allow"
      Principal = { AWS = "arn:${data.aws_partition.here.partition}:iam::${data.aws_caller_identity.here.account_id}:root" }
      Action    = "kms:*"
      Resource  = "*"
    }]
  })
  tags = merge(local.spec.tags, { KubernetesCluster = local.spec.cluster })

  lifecycle {
    prevent_destroy = true
  }
}

resource "aws_kms_alias" "secrets" {
  name          = local.spec.alias
  target_key_id = aws_kms_key.secrets.key_id

  lifecycle {
    prevent_destroy = true
  }
}

output "key_arn" {
  description = "The key."
  value       = aws_kms_key.secrets.arn
}
