output "zone_id" {
  description = "The private zone: ZoneId of the function's stack."
  value       = local.zone_id
}

output "group_names" {
  description = "The groups: GroupNames of the function's stack."
  value       = join(",", local.spec.names)
}

output "security_group_ids" {
  description = "The security group of each role."
  value       = { for role, group in aws_security_group.role : role => group.id }
}

output "pod_role_arns" {
  description = "The roles of pods: AWS_ROLE_ARN, by the names in the document."
  value       = { for name, role in aws_iam_role.pod : name => role.arn }
}

output "load_balancer_name" {
  description = "Where clients reach the API, null without a load balancer."
  value       = one(aws_lb.api[*].dns_name)
}

# What hardtack stack status, refresh, rollback and delete act on: hardtack stack status --terraform terraform.tfstate. A module that calls
# this one has to pass it on under the same name: output "hardtack" { value = module.NAME.hardtack }
output "hardtack" {
  description = "What has been made, for hardtack's own commands."
  value = {
    version       = 1
    cluster       = local.spec.cluster
    region        = data.aws_region.here.id
    zone_id       = local.zone_id
    owns_zone     = var.zone_id == null
    groups        = [for name in local.spec.names : aws_autoscaling_group.group[name].name]
    roles         = { for name, role in aws_iam_role.machine : name => role.name }
    machines      = var.machines
    load_balancer = one(aws_lb.api[*].dns_name)
  }
}
