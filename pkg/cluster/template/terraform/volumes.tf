# A volume for each member of etcd, where the document wants them: it outlives the member's machines, which attach it to
# themselves. Terraform neither destroys nor replaces one. To destroy the rest, take the volumes out of the state first:
# terraform state rm aws_ebs_volume.member
locals {
  member_subnets = length(var.etcd_subnet_ids) > 0 ? var.etcd_subnet_ids : slice(var.subnet_ids, 0, 1)
}

data "aws_subnet" "member" {
  for_each = local.spec.volumes
  id       = local.member_subnets[each.value.place]
}

resource "aws_ebs_volume" "member" {
  for_each          = local.spec.volumes
  availability_zone = data.aws_subnet.member[each.key].availability_zone
  type              = "gp3"
  size              = each.value.size
  iops              = each.value.iops
  throughput        = each.value.throughput
  encrypted         = true
  kms_key_id        = each.value.key == "" ? null : each.value.key
  tags              = merge(local.tags, { Name = each.value.name, EtcdMember = each.key })

  lifecycle {
    prevent_destroy = true
  }
}
