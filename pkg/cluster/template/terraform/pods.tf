# The identity provider of the cluster's tokens, and the roles that pods take with them, where the document has any.
locals {
  pod_policies = merge([
    for name, role in local.spec.pods.roles : {
      for arn in role.policies : "${name} ${arn}" => { role = name, arn = arn }
    }
  ]...)
}

resource "aws_iam_openid_connect_provider" "pods" {
  for_each       = { for issuer in compact([local.spec.pods.issuer]) : "pods" => issuer }
  url            = each.value
  client_id_list = [local.spec.pods.audience]
  tags           = merge(local.tags, { Name = "${local.spec.cluster}-pods" })
}

# It was counted, with a URL that was empty in a document without roles, which is no valid configuration.
moved {
  from = aws_iam_openid_connect_provider.pods[0]
  to   = aws_iam_openid_connect_provider.pods["pods"]
}

resource "aws_iam_role" "pod" {
  for_each             = local.spec.pods.roles
  name                 = each.value.role_name == "" ? null : replace(each.value.role_name, "$${AWS::Region}", data.aws_region.here.id)
  description          = each.value.description
  permissions_boundary = var.permissions_boundary
  assume_role_policy = jsonencode({
    Version = "2012-10-17"
    Statement = [{
      Effect    = "Allow"
      Principal = { Federated = aws_iam_openid_connect_provider.pods["pods"].arn }
      Action    = "sts:AssumeRoleWithWebIdentity"
      Condition = { StringEquals = each.value.conditions }
    }]
  })
  tags = merge(local.tags, { Name = "${local.spec.cluster}-pod-${each.key}" })
}

resource "aws_iam_role_policy" "pod" {
  for_each = { for name, role in local.spec.pods.roles : name => role if length(role.statements) > 0 }
  name     = "pod"
  role     = aws_iam_role.pod[each.key].id
  policy   = local.pod_statements[each.key]
}

resource "aws_iam_role_policy_attachment" "pod" {
  for_each   = local.pod_policies
  role       = aws_iam_role.pod[each.value.role].name
  policy_arn = each.value.arn
}
