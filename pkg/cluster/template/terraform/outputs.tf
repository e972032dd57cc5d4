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
