# A bake of small stand-ins for the components, which the test can hold up, break or starve while it runs.

variable "lock" {}
variable "mirror" {}
variable "cache" {}
variable "output" {}

# What runs in the image, and on this computer, after the components are in.
variable "inside" { default = "true" }
variable "outside" { default = "true" }

source "hardtack-disk" "local" {
  output_directory = var.output
  image_name       = "hardtack"
}

build {
  sources = ["source.hardtack-disk.local"]

  provisioner "hardtack" {
    lock      = var.lock
    source    = "release"
    mirror    = var.mirror
    cache_dir = var.cache
  }

  provisioner "shell" {
    inline = ["echo inside the image", var.inside]
  }

  provisioner "shell-local" {
    inline = [var.outside]
  }
}
