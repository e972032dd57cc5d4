# For HashiCorp's page of integrations; the pages beside it are rendered by packer-sdc.
integration {
  name        = "Hardtack"
  description = "Bakes every Kubernetes program and every systemd unit into one machine image, and publishes it as an AMI."
  identifier  = "packer/hardtack/hardtack"
  component {
    type = "builder"
    name = "Hardtack disk"
    slug = "disk"
  }
  component {
    type = "provisioner"
    name = "Hardtack"
    slug = "hardtack"
  }
  component {
    type = "post-processor"
    name = "Hardtack AMI"
    slug = "ami"
  }
  component {
    type = "data-source"
    name = "Hardtack lock"
    slug = "lock"
  }
}
