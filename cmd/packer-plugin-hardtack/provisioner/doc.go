// Package provisioner is Packer's `provisioner "hardtack"`: it bakes Hardtack into the machine of a builder.
//
// It makes no decisions about images. It translates a template's options to the inputs of rootfs and bake, and
// Packer's communicator and Ui to the interfaces of those packages.
package provisioner
