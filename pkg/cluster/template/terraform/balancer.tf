# The network load balancer before the API servers, where the document wants one. Machines do not use it.
locals {
  balancer = local.spec.aws.load_balancer == "none" ? 0 : 1
}

resource "aws_security_group" "balancer" {
  count       = local.balancer
  description = "the load balancer before the API servers of the Hardtack cluster ${local.spec.cluster}"
  vpc_id      = var.vpc_id
  tags        = merge(local.tags, { Name = "${local.spec.cluster}-api" })
}

resource "aws_vpc_security_group_ingress_rule" "balancer_clients" {
  count             = var.api_cidr == null ? 0 : local.balancer
  security_group_id = aws_security_group.balancer[0].id
  ip_protocol       = "tcp"
  from_port         = local.spec.api_port
  to_port           = local.spec.api_port
  cidr_ipv4         = var.api_cidr
  description       = "kube-apiserver"
}

resource "aws_vpc_security_group_egress_rule" "balancer" {
  count                        = local.balancer
  security_group_id            = aws_security_group.balancer[0].id
  ip_protocol                  = "tcp"
  from_port                    = local.spec.api_port
  to_port                      = local.spec.api_port
  referenced_security_group_id = aws_security_group.role["masters"].id
}

resource "aws_vpc_security_group_ingress_rule" "masters_from_balancer" {
  count                        = local.balancer
  security_group_id            = aws_security_group.role["masters"].id
  ip_protocol                  = "tcp"
  from_port                    = local.spec.api_port
  to_port                      = local.spec.api_port
  referenced_security_group_id = aws_security_group.balancer[0].id
  description                  = "kube-apiserver"
}

resource "aws_lb" "api" {
  count                            = local.balancer
  load_balancer_type               = "network"
  internal                         = local.spec.aws.load_balancer == "internal"
  subnets                          = var.load_balancer_subnet_ids
  security_groups                  = [aws_security_group.balancer[0].id]
  enable_cross_zone_load_balancing = true
  ip_address_type                  = local.spec.aws.dual_stack ? "dualstack" : "ipv4"
  tags                             = merge(local.tags, { Name = "${local.spec.cluster}-api" })
}

resource "aws_lb_target_group" "api" {
  count       = local.balancer
  protocol    = "TCP"
  port        = local.spec.api_port
  target_type = "instance"
  vpc_id      = var.vpc_id
  tags        = merge(local.tags, { Name = "${local.spec.cluster}-api" })

  # An API server tells anybody whether it is ready, and nothing else.
  health_check {
    protocol            = "HTTPS"
    path                = "/readyz"
    interval            = 10
    healthy_threshold   = 2
    unhealthy_threshold = 2
  }
}

resource "aws_lb_listener" "api" {
  count             = local.balancer
  load_balancer_arn = aws_lb.api[0].arn
  protocol          = "TCP"
  port              = local.spec.api_port

  default_action {
    type             = "forward"
    target_group_arn = aws_lb_target_group.api[0].arn
  }
}
