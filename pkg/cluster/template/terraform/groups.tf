resource "aws_iam_role" "machine" {
  for_each             = local.spec.groups
  description          = "what a machine of the group ${each.key} may do"
  permissions_boundary = var.permissions_boundary
  assume_role_policy = jsonencode({
    Version = "2012-10-17"
    Statement = [{
      Effect    = "Allow"
      Principal = { Service = "ec2.${data.aws_partition.here.dns_suffix}" }
      Action    = "sts:AssumeRole"
    }]
  })
  tags = merge(local.tags, each.value.own_tags, { Name = each.key })
}

resource "aws_iam_role_policy" "machine" {
  for_each = local.spec.groups
  name     = "machine"
  role     = aws_iam_role.machine[each.key].id
  policy   = local.policies[each.key]
}

# What the document allows the machines beside that.
resource "aws_iam_role_policy" "own" {
  for_each = { for name, group in local.spec.groups : name => group if length(group.allow) > 0 }
  name     = "own"
  role     = aws_iam_role.machine[each.key].id
  policy   = jsonencode({ Version = "2012-10-17", Statement = each.value.allow })
}

locals {
  group_policies = merge([
    for name, group in local.spec.groups : {
      for arn in group.policies : "${name} ${arn}" => { group = name, arn = arn }
    }
  ]...)
  group_hooks = merge([
    for name, group in local.spec.groups : {
      for hook in group.hooks : "${name} ${hook.name}" => merge(hook, { group = name })
    }
  ]...)
}

resource "aws_iam_role_policy_attachment" "machine" {
  for_each   = local.group_policies
  role       = aws_iam_role.machine[each.value.group].name
  policy_arn = each.value.arn
}

resource "aws_iam_instance_profile" "machine" {
  for_each = local.spec.groups
  role     = aws_iam_role.machine[each.key].name
}

resource "aws_launch_template" "group" {
  for_each               = local.spec.groups
  name                   = each.key
  description            = each.value.config_hash
  update_default_version = true
  image_id               = data.aws_ssm_parameter.image.insecure_value
  instance_type          = each.value.instance_type
  user_data              = each.value.user_data
  vpc_security_group_ids = concat([for role in each.value.security_groups : aws_security_group.role[role].id], each.value.more_security_groups)
  tags                   = local.spec.tags

  iam_instance_profile {
    arn = aws_iam_instance_profile.machine[each.key].arn
  }

  # A pod is one hop further than its machine, and so never reaches the machine's credentials. Only a member of etcd reads
  # its tags there: with them EC2 launches no machine that has a tag with a slash, as cluster-autoscaler's are.
  metadata_options {
    http_endpoint               = "enabled"
    http_tokens                 = "required"
    http_put_response_hop_limit = 1
    instance_metadata_tags      = each.value.reads_tags ? "enabled" : "disabled"
  }

  block_device_mappings {
    device_name = local.spec.aws.root_device
    ebs {
      volume_size           = each.value.volume
      volume_type           = "gp3"
      iops                  = each.value.iops == 0 ? null : each.value.iops
      throughput            = each.value.throughput == 0 ? null : each.value.throughput
      encrypted             = true
      kms_key_id            = local.spec.aws.key == "" ? null : local.spec.aws.key
      delete_on_termination = true
    }
  }

  dynamic "tag_specifications" {
    for_each = length(each.value.own_tags) > 0 ? ["volume", "network-interface"] : ["volume"]
    content {
      resource_type = tag_specifications.value
      tags          = merge(local.tags, each.value.own_tags, { Name = each.key })
    }
  }
}

# Machines are replaced by `hardtack stack refresh`, which knows what a quorum is: so there is no instance_refresh here.
# Something else sets how many machines an elastic group has.
resource "aws_autoscaling_group" "group" {
  for_each            = local.spec.groups
  name                = each.key
  min_size            = var.machines ? each.value.size : 0
  max_size            = each.value.max
  desired_capacity    = var.machines ? (each.value.elastic ? null : each.value.size) : 0
  vpc_zone_identifier = each.value.place < 0 ? var.subnet_ids : [local.member_subnets[each.value.place]]
  health_check_type   = "EC2"
  target_group_arns   = each.value.balanced ? aws_lb_target_group.api[*].arn : []
  capacity_rebalance  = each.value.rebalance
  # 0 takes a limit away that was there.
  max_instance_lifetime = each.value.max_lifetime
  enabled_metrics       = each.value.metrics
  # The launch hook holds a machine until all its roles work.
  wait_for_capacity_timeout = "${local.spec.capacity_timeout}s"

  dynamic "launch_template" {
    for_each = length(each.value.mixed) == 0 ? [aws_launch_template.group[each.key]] : []
    content {
      id      = launch_template.value.id
      version = launch_template.value.latest_version
    }
  }

  dynamic "mixed_instances_policy" {
    for_each = each.value.mixed
    content {
      instances_distribution {
        on_demand_allocation_strategy            = "prioritized"
        on_demand_base_capacity                  = mixed_instances_policy.value.on_demand_base
        on_demand_percentage_above_base_capacity = mixed_instances_policy.value.on_demand_percent
        spot_allocation_strategy                 = mixed_instances_policy.value.spot_allocation
      }
      launch_template {
        launch_template_specification {
          launch_template_id = aws_launch_template.group[each.key].id
          version            = aws_launch_template.group[each.key].latest_version
        }
        dynamic "override" {
          for_each = mixed_instances_policy.value.types
          content {
            instance_type = override.value
          }
        }
      }
    }
  }

  # A new group has its hooks from these, before its first machine: AWS's provider sends them with the group, and never again.
  dynamic "initial_lifecycle_hook" {
    for_each = each.value.hooks
    content {
      name                 = initial_lifecycle_hook.value.name
      lifecycle_transition = initial_lifecycle_hook.value.transition
      default_result       = initial_lifecycle_hook.value.result
      heartbeat_timeout    = initial_lifecycle_hook.value.timeout
    }
  }

  dynamic "tag" {
    for_each = each.value.tags
    content {
      key                 = tag.value.key
      value               = tag.value.value
      propagate_at_launch = tag.value.propagate
    }
  }

  dynamic "tag" {
    for_each = each.value.own_tags
    content {
      key                 = tag.key
      value               = tag.value
      propagate_at_launch = true
    }
  }

  # By it the masters know a machine that proves its identity.
  tag {
    key                 = "InstanceRole"
    value               = aws_iam_role.machine[each.key].name
    propagate_at_launch = false
  }

  depends_on = [aws_route53_record.placeholder, aws_iam_role_policy.machine, aws_iam_role_policy.own, aws_iam_role_policy_attachment.machine]
}

# The same hooks again: what changes later reaches a group by these. For a new group they put what is there already.
resource "aws_autoscaling_lifecycle_hook" "group" {
  for_each               = local.group_hooks
  name                   = each.value.name
  autoscaling_group_name = aws_autoscaling_group.group[each.value.group].name
  lifecycle_transition   = each.value.transition
  default_result         = each.value.result
  heartbeat_timeout      = each.value.timeout
}
