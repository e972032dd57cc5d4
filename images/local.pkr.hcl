# The default image: a disk that boots in QEMU and on EC2 Nitro, made on this machine and without a
# cloud account. It needs root, for mmdebstrap and for the root directory that commands run in.
#
#   sudo packer build images/local.pkr.hcl
#
# With -var publish=true a machine image on AWS is made of it (images/publish.pkr.hcl does that alone, without root).
#
# It leaves hardtack.qcow2 in var.output, and beside it image.json (what is in the image), sbom.cdx.json,
# roles.txt (which units each role starts) and provenance.intoto.json (what the disk was made of, and how).

packer {
  required_plugins {
    hardtack = {
      source  = "github.com/hardtack/hardtack"
      version = ">= 0.1.0"
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
  description = "The directory for the disk, image.json, the SBOM and the role table."
  type        = string
  default     = "build"
}

variable "architecture" {
  description = "The disk's architecture, amd64 or arm64; null takes this machine's."
  type        = string
  default     = null
}

variable "suite" {
  description = "Debian's release."
  type        = string
  default     = "trixie"
}

variable "debian_mirror" {
  description = "The Debian archive: a URL or a line of a sources.list; null takes mmdebstrap's default mirror."
  type        = string
  default     = null
}

variable "formats" {
  description = "What to write: qcow2, raw or both."
  type        = list(string)
  default     = ["qcow2"]
}

variable "disk_size" {
  description = "The size that a machine sees; the file holds only what is in it."
  type        = string
  default     = "8G"
}

variable "initrd" {
  description = "Whether the disk also boots as virtio, SATA or Xen, which takes an initial RAM disk."
  type        = bool
  default     = false
}

variable "root" {
  description = "The root file system: writable, or sealed (read-only, verified; boots by UEFI only)."
  type        = string
  default     = "writable"
}

variable "secure_boot_key" {
  description = "With root=sealed: the PEM key that signs the kernel image; null signs nothing."
  type        = string
  default     = null
}

variable "secure_boot_certificate" {
  description = "The PEM certificate of secure_boot_key."
  type        = string
  default     = null
}

variable "kernel_arguments" {
  description = "Arguments to add to the kernel's command line."
  type        = list(string)
  default     = []
}

variable "publish" {
  description = "Whether to make a machine image on AWS of the disk, as images/publish.pkr.hcl does of one that is there."
  type        = bool
  default     = false
}

variable "region" {
  description = "With publish: where the image is made; null takes the environment's region."
  type        = string
  default     = null
}

variable "channel" {
  description = "With publish: the channel that names the image in the end; null is none."
  type        = string
  default     = null
}

source "hardtack-disk" "local" {
  suite            = var.suite
  mirror           = var.debian_mirror
  arch             = var.architecture
  output_directory = var.output
  image_name       = "hardtack"
  formats          = var.formats
  disk_size        = var.disk_size
  initrd           = var.initrd
  root             = var.root

  secure_boot_key         = var.secure_boot_key
  secure_boot_certificate = var.secure_boot_certificate
}

build {
  name    = "hardtack"
  sources = ["source.hardtack-disk.local"]

  provisioner "hardtack" {
    lock             = var.lock
    source           = var.source
    mirror           = var.mirror
    require_pins     = var.require_pins
    agent_path       = var.agent_path
    reader_path      = var.reader_path
    kernel_arguments = var.kernel_arguments
  }

  # Without publish these are for a source that there is not, and no account is asked for anything.
  post-processors {
    post-processor "hardtack-ami" {
      only    = var.publish ? ["hardtack-disk.local"] : ["nothing.published"]
      region  = var.region
      channel = var.channel
    }

    post-processor "manifest" {
      only   = var.publish ? ["hardtack-disk.local"] : ["nothing.published"]
      output = "${var.output}/manifest.json"
    }
  }
}
