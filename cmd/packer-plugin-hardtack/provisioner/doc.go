// Package provisioner is Packer's `provisioner "hardtack"`: it bakes Hardtack into the machine that a
// builder has made.
//
// Its rule: it decides nothing about images. It turns a template's options into the inputs of rootfs
// and bake, and Packer's communicator and Ui into what those packages ask for.
package provisioner
