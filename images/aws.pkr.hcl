# An Amazon machine image of Hardtack: the provisioner of local.pkr.hcl under amazon-ebs.
#
#   packer init images/aws.pkr.hcl
#   packer validate images/aws.pkr.hcl
#   packer build -var region=eu-central-1 images/aws.pkr.hcl
#
# Each build makes an image of its own, with Debian's newest packages. An image_name that exists ends
# a build before it begins. The tags are those by which `hardtack image list`, `gc` and `promote` know
# an image; nothing here ever deregisters one, since a group of machines may be using it.

packer {
  required_plugins {
    hardtack = {
      source  = "github.com/hardtack/hardtack"
      version = ">= 0.1.0"
    }
    amazon = {
      source  = "github.com/hashicorp/amazon"
      version = ">= 1.8.2"
    }
  }
}

variable "lock" {
  description = "The lock file: a path, or the name of one that the plugin carries."
  type        = string
  default     = "kubernetes-1.36"
}

variable "source" {
  description = "Where components come from: release, modules or auto."
  type        = string
  default     = "auto"
}

variable "mirror" {
  description = "A mirror of the release files, http(s) or a directory; null asks upstream."
  type        = string
  default     = null
}

variable "require_pins" {
  description = "Whether to refuse compiled components whose digest the lock does not pin."
  type        = bool
  default     = false
}

variable "agent_path" {
  description = "The hardtack-agent program for the architecture; null takes the plugin's own."
  type        = string
  default     = null
}

variable "reader_path" {
  description = "The hardtack-userdata program for the architecture; null takes the plugin's own."
  type        = string
  default     = null
}

variable "output" {
  description = "The directory for image.json, the SBOM, the role table and the list of artifacts."
  type        = string
  default     = "build"
}

variable "family" {
  description = "The line of images to which this one belongs, as image_name of publish.pkr.hcl."
  type        = string
  default     = "hardtack"
}

variable "image_name" {
  description = "The image's name, which no image in the region has; null makes one of the lock, the architecture and the time."
  type        = string
  default     = null
}

variable "architecture" {
  description = "The image's architecture: amd64 or arm64."
  type        = string
  default     = "amd64"
  validation {
    condition     = contains(["amd64", "arm64"], var.architecture)
    error_message = "The architecture must be amd64 or arm64."
  }
}

variable "region" {
  description = "The region of the image; null takes AWS_REGION or the profile's."
  type        = string
  default     = null
}

variable "instance_type" {
  description = "The builder's type; null takes a small one of the architecture."
  type        = string
  default     = null
}

variable "volume_size" {
  description = "The image's root volume in GiB. It grows with the volume of a machine that boots from it."
  type        = number
  default     = 8
}

variable "kms_key_id" {
  description = "The key for the root volume and the snapshot; null takes the account's key for EBS."
  type        = string
  default     = null
}

variable "subnet_id" {
  description = "The builder's subnet; null takes one of the default VPC."
  type        = string
  default     = null
}

variable "associate_public_ip_address" {
  description = "Whether the builder gets a public address; null leaves it to the subnet."
  type        = bool
  default     = null
}

variable "source_cidrs" {
  description = "The networks that may reach the builder by ssh; null allows this machine's public address only."
  type        = list(string)
  default     = null
}

variable "ssh_interface" {
  description = "How Packer reaches the builder: public_ip, private_ip, session_manager and others of amazon-ebs; null takes what there is."
  type        = string
  default     = null
}

variable "ssh_host" {
  description = "Where Packer reaches the builder's ssh, where it is behind a tunnel; null asks EC2."
  type        = string
  default     = null
}

variable "ssh_port" {
  description = "The port that goes with ssh_host."
  type        = number
  default     = 22
}

variable "lifetime_minutes" {
  description = "How long a builder may live: it ends itself then, even where Packer was killed and could not end it."
  type        = number
  default     = 180
}

data "hardtack-lock" "image" {
  lock = var.lock
}

locals {
  # Of nothing that the data source says: `packer validate` does not run it, and checks the name nevertheless.
  lock_name  = substr(regex_replace(trimsuffix(basename(var.lock), ".lock.yaml"), "[^0-9A-Za-z._-]", "-"), 0, 60)
  image_name = var.image_name == null ? "${var.family}-${local.lock_name}-${var.architecture}-${formatdate("YYYYMMDD'T'hhmmss'Z'", timestamp())}" : var.image_name
  types      = { amd64 = "c7i.large", arm64 = "c7g.large" }

  # For the image and its snapshot.
  tags = {
    Name                  = local.image_name
    "hardtack:image"      = var.family
    "hardtack:kubernetes" = data.hardtack-lock.image.kubernetes
    "hardtack:bake"       = data.hardtack-lock.image.fingerprint
    "hardtack:version"    = data.hardtack-lock.image.hardtack
    HardtackLock          = data.hardtack-lock.image.name
    HardtackSource        = var.source
    BaseImage             = "{{ .SourceAMIName }}"
  }

  # For what only lives while the image is made: whoever sweeps an account can tell what is too old.
  builder_tags = {
    Name            = "hardtack-builder-${data.hardtack-lock.image.fingerprint}"
    HardtackBuilder = local.image_name
    HardtackExpires = timeadd(timestamp(), "${var.lifetime_minutes}m")
  }
}

source "amazon-ebs" "node" {
  region          = var.region
  ami_name        = local.image_name
  ami_description = "Kubernetes ${data.hardtack-lock.image.kubernetes}, every role, on Debian 13"
  tags            = local.tags
  snapshot_tags   = local.tags
  source_ami_filter {
    most_recent = true
    owners      = ["136693071363"] # Debian: https://wiki.debian.org/Cloud/AmazonEC2Image
    filters = {
      name                = "debian-13-${var.architecture}-*"
      architecture        = var.architecture == "amd64" ? "x86_64" : "arm64"
      virtualization-type = "hvm"
    }
  }

  # Without it, the expiry of the builder would be on the image as well.
  skip_ami_run_tags = true
  imds_support      = "v2.0"
  ena_support       = true
  # The boot mode cannot be chosen here: EC2 takes it over from Debian's image (UEFI where the type has it).

  instance_type                             = var.instance_type == null ? local.types[var.architecture] : var.instance_type
  subnet_id                                 = var.subnet_id
  associate_public_ip_address               = var.associate_public_ip_address
  temporary_security_group_source_cidrs     = var.source_cidrs
  temporary_security_group_source_public_ip = var.source_cidrs == null
  run_tags                                  = local.builder_tags
  run_volume_tags                           = local.builder_tags
  shutdown_behavior                         = "terminate"
  user_data                                 = "#!/bin/sh\nexec shutdown -P +${var.lifetime_minutes}\n"

  metadata_options {
    http_endpoint               = "enabled"
    http_tokens                 = "required"
    http_put_response_hop_limit = 1
  }

  # Encrypted from the start: encrypting at the end would be a copy of the whole snapshot.
  launch_block_device_mappings {
    device_name           = "/dev/xvda"
    volume_type           = "gp3"
    volume_size           = var.volume_size
    encrypted             = true
    kms_key_id            = var.kms_key_id
    delete_on_termination = true
  }

  communicator              = "ssh"
  ssh_username              = "admin"
  ssh_interface             = var.ssh_interface
  ssh_host                  = var.ssh_host
  ssh_port                  = var.ssh_port
  ssh_timeout               = "10m"
  ssh_clear_authorized_keys = true
  temporary_key_pair_type   = "ed25519"

  # A large snapshot takes longer than the plugin's own patience: an hour instead.
  aws_polling {
    delay_seconds = 15
    max_attempts  = 240
  }
}

build {
  sources = ["source.amazon-ebs.node"]

  provisioner "hardtack" {
    lock         = var.lock
    source       = var.source
    mirror       = var.mirror
    require_pins = var.require_pins
    agent_path   = var.agent_path
    reader_path  = var.reader_path
    output       = var.output
  }

  post-processor "manifest" {
    output = "${var.output}/artifacts.json"
  }
}
