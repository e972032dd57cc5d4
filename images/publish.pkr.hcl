# A baked disk becomes a machine image on AWS. Apart from the bake, which needs root and no account where this needs an
# account and no root; and so that the same disk can be published again, elsewhere, or in a channel.
#
#   packer build -var region=eu-central-1 images/publish.pkr.hcl
#   packer build -var disk=other.raw -var architecture=arm64 images/publish.pkr.hcl   # without an image.json

packer {
  required_plugins {
    hardtack = {
      source  = "github.com/hardtack/hardtack"
      version = ">= 0.1.0"
    }
  }
}

variable "disk" {
  description = "The disk image, qcow2 or raw. Its image.json, if it is beside it, says what is in it."
  type        = string
  default     = "build/hardtack.qcow2"
}

variable "architecture" {
  description = "The disk's architecture, amd64 or arm64; null takes that of image.json, which must be there then."
  type        = string
  default     = null
}

variable "image_name" {
  description = "The line of images: the image is called this and a digest."
  type        = string
  default     = "hardtack"
}

variable "region" {
  description = "Where the image is made; null takes the environment's region."
  type        = string
  default     = null
}

variable "copy_to" {
  description = "Regions that get a copy."
  type        = list(string)
  default     = []
}

variable "kms_key" {
  description = "The ARN of a key to encrypt with, or default; null leaves it to the account's settings."
  type        = string
  default     = null
}

variable "share_accounts" {
  description = "Accounts that may launch the image."
  type        = list(string)
  default     = []
}

variable "channel" {
  description = "The channel that names the image in the end, such as testing; null is none."
  type        = string
  default     = null
}

variable "output" {
  description = "The directory for manifest.json, which says what was published."
  type        = string
  default     = "build"
}

source "null" "disk" {
  communicator = "none"
}

build {
  name    = "publish"
  sources = ["source.null.disk"]

  post-processors {
    post-processor "hardtack-ami" {
      disk           = var.disk
      image_name     = var.image_name
      architecture   = var.architecture
      region         = var.region
      kms_key        = var.kms_key
      share_accounts = var.share_accounts
      channel        = var.channel

      dynamic "copy" {
        for_each = var.copy_to
        content {
          region = copy.value
        }
      }
    }

    post-processor "manifest" {
      output = "${var.output}/manifest.json"
    }
  }
}
