# An image with a role of its own, ingress, and a further unit for minions. Everything is from Debian:
#
#   sudo packer build images/example/ingress/ingress.pkr.hcl
#
# It leaves ingress.qcow2 in var.output, and beside it image.json, sbom.cdx.json and roles.txt.

packer {
  required_plugins {
    hardtack = {
      source  = "github.com/hardtack/hardtack"
      version = ">= 0.1.0"
    }
  }
}

variable "output" {
  description = "The directory for the disk, image.json, the SBOM and the role table."
  type        = string
  default     = "build/ingress"
}

variable "source" {
  description = "Where components come from: release, modules or auto."
  type        = string
  default     = "auto"
}

source "hardtack-disk" "ingress" {
  output_directory = var.output
  image_name       = "ingress"
}

build {
  name    = "ingress"
  sources = ["source.hardtack-disk.ingress"]

  provisioner "hardtack" {
    source    = var.source
    packages  = ["haproxy", "prometheus-node-exporter"]
    units_dir = ["${path.root}/units"]

    file {
      source      = "${path.root}/ingress.cfg"
      destination = "/etc/haproxy/ingress.cfg"
    }
  }

  # What the image is for, checked before there is a disk of it. A check that fails ends the build.
  provisioner "shell" {
    execute_command  = "{{ .Vars }} sh -eu {{ .Path }}"
    environment_vars = ["CLUSTER_NAME=check"]
    inline = [
      "/usr/sbin/haproxy -c -f /etc/haproxy/ingress.cfg",
      "/usr/bin/prometheus-node-exporter --version",
      "getent passwd haproxy prometheus",
      "systemctl --root=/ is-enabled haproxy.service prometheus-node-exporter.service",
      "grep -x '.*haproxy is reached at 80/tcp on ingress, from 10.0.0.0/8.' /usr/lib/hardtack/roles.txt",
      "grep -q '^haproxy ' /usr/lib/hardtack/roles.txt",
    ]
  }
}
