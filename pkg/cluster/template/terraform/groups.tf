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
  tags = merge(local.tags, { Name = each.key })
}

resource "aws_iam_role_policy" "machine" {
  for_each = local.spec.groups
  name     = "machine"
  role     = aws_iam_role.machine[each.key].id
  policy   = local.policies[each.key]
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
  vpc_security_group_ids = [for role in each.value.security_groups : aws_security_group.role[role].id]

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
      encrypted             = true
      kms_key_id            = local.spec.aws.key == "" ? null : local.spec.aws.key
      delete_on_termination = true
    }
  }

  tag_specifications {
    resource_type = "volume"
    tags          = merge(local.tags, { Name = each.key })
  }
}

# Machines are replaced by `hardtack stack refresh`, which knows what a quorum is: so there is no instance_refresh here.
resource "aws_autoscaling_group" "group" {
  for_each            = local.spec.groups
  name                = each.key
  min_size            = var.machines ? each.value.size : 0
  max_size            = each.value.max
  desired_capacity    = var.machines ? null : 0
  vpc_zone_identifier = each.value.place < 0 ? var.subnet_ids : [local.member_subnets[each.value.place]]
  health_check_type   = "EC2"
  target_group_arns   = each.value.balanced ? aws_lb_target_group.api[*].arn : []

  launch_template {
    id      = aws_launch_template.group[each.key].id
    version = aws_launch_template.group[each.key].latest_version
  }

  # Part of the group, so that they are there before its first machine.
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

  # By it the masters know a machine that proves its identity.
  tag {
    key                 = "InstanceRole"
    value               = aws_iam_role.machine[each.key].name
    propagate_at_launch = false
  }

  depends_on = [aws_route53_record.placeholder, aws_iam_role_policy.machine]
}
