# A security group a role; a machine has those of all its roles.
resource "aws_security_group" "role" {
  for_each    = toset(local.spec.roles)
  description = "${each.key} of the Hardtack cluster ${local.spec.cluster}"
  vpc_id      = var.vpc_id
  tags        = merge(local.tags, { Name = "${local.spec.cluster}-${each.key}" }, lookup(local.spec.role_tags, each.key, {}))
}

resource "aws_vpc_security_group_ingress_rule" "port" {
  for_each                     = { for rule in local.spec.ingress : "${rule.to} ${rule.protocol} ${rule.ports} from ${rule.from}${rule.cidr}" => rule }
  security_group_id            = aws_security_group.role[each.value.to].id
  referenced_security_group_id = each.value.from == "" ? null : aws_security_group.role[each.value.from].id
  cidr_ipv4                    = each.value.cidr == "" || each.value.ipv6 ? null : each.value.cidr
  cidr_ipv6                    = each.value.ipv6 ? each.value.cidr : null
  ip_protocol                  = each.value.protocol
  from_port                    = each.value.port
  to_port                      = each.value.last
  description                  = each.value.program
}

# Everything may go out: machines speak to the AWS APIs, and pods to whatever they are for.
resource "aws_vpc_security_group_egress_rule" "out" {
  for_each          = aws_security_group.role
  security_group_id = each.value.id
  ip_protocol       = "-1"
  cidr_ipv4         = "0.0.0.0/0"
}

# A VPC may have IPv6, and then machines and pods use it.
resource "aws_vpc_security_group_egress_rule" "out_ipv6" {
  for_each          = aws_security_group.role
  security_group_id = each.value.id
  ip_protocol       = "-1"
  cidr_ipv6         = "::/0"
}

resource "aws_vpc_security_group_ingress_rule" "clients" {
  count             = var.api_cidr != null && local.balancer == 0 && contains(local.spec.roles, "masters") ? 1 : 0
  security_group_id = aws_security_group.role["masters"].id
  ip_protocol       = "tcp"
  from_port         = local.spec.api_port
  to_port           = local.spec.api_port
  cidr_ipv4         = var.api_cidr
  description       = "kube-apiserver"
}

# What the document's aws.apiAccess has beside that.
locals {
  api_access = { for range in local.spec.api_access : range.cidr => range }
}

resource "aws_vpc_security_group_ingress_rule" "access" {
  for_each          = contains(local.spec.roles, "masters") ? local.api_access : {}
  security_group_id = local.balancer == 0 ? aws_security_group.role["masters"].id : aws_security_group.balancer[0].id
  ip_protocol       = "tcp"
  from_port         = local.spec.api_port
  to_port           = local.spec.api_port
  cidr_ipv4         = each.value.ipv6 ? null : each.key
  cidr_ipv6         = each.value.ipv6 ? each.key : null
  description       = "kube-apiserver"
}
