resource "aws_route53_zone" "this" {
  count   = var.zone_id == null ? 1 : 0
  name    = local.spec.zone
  comment = "Hardtack: the records of the clusters in this VPC, kept by hardtack-dns"
  # Route 53 deletes no zone that has records, and those of the function are not Terraform's.
  force_destroy = var.destroy_records
  vpc {
    vpc_id = var.vpc_id
  }
}

# The records that a cluster is created with. From the first sweep on they are the function's.
resource "aws_route53_record" "placeholder" {
  for_each = var.zone_id == null ? { for record in local.spec.placeholders : "${record.name} ${record.type}" => record } : {}
  zone_id  = local.zone_id
  name     = each.value.name
  type     = each.value.type
  ttl      = each.value.ttl
  records  = each.value.values
  lifecycle {
    ignore_changes = [records, ttl]
  }
}
