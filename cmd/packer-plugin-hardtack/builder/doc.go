// Package builder is the Packer builder "hardtack-disk": it makes a root directory from Debian packages, lets
// provisioners change it, and makes a bootable disk image of it.
//
// Everything happens in one directory beside the output until the image is complete. So a build that fails or is
// cancelled leaves nothing, and one that succeeds replaces files by renaming.
//
// It works on Linux, with its mounts and namespaces. Elsewhere there is a builder of the same options, which says so.
package builder
