# Bakes into a machine that is there already and answers ssh: for trying the provisioner, or for
# machines that no builder makes. The machine keeps running; its image is yours to take.
#
#   packer build -var host=192.0.2.7 -var key=~/.ssh/id_ed25519 example/ssh.pkr.hcl

packer {
  required_plugins {
    hardtack = {
      source  = "github.com/hardtack/hardtack"
      version = ">= 0.1.0"
    }
  }
}

variable "host" {
  description = "The machine's name or address."
  type        = string
  default     = "localhost"
}

variable "port" {
  description = "The port of its ssh."
  type        = number
  default     = 22
}

variable "user" {
  description = "root, or a user that `sudo -n` works for."
  type        = string
  default     = "root"
}

variable "key" {
  description = "The private key for it; null asks the ssh agent."
  type        = string
  default     = null
}

variable "source" {
  description = "Where components come from: release, modules or auto."
  type        = string
  default     = "auto"
}

source "null" "machine" {
  ssh_host             = var.host
  ssh_port             = var.port
  ssh_username         = var.user
  ssh_private_key_file = var.key
  ssh_agent_auth       = var.key == null
}

build {
  sources = ["source.null.machine"]

  provisioner "hardtack" {
    source = var.source
    output = "build"
    sysctls = {
      "vm.max_map_count" = "262144"
    }
    file {
      content     = "Authorized use only.\n"
      destination = "/etc/issue.d/hardtack.issue"
    }
  }
}
