// Package images holds what goes into the image and is not code: the lock files, the modules that
// components are compiled from, and the root file system's plain files. Code takes FS.
package images

import "embed"

// FS holds *.lock.yaml, modules/*.txtar, packages (the Debian packages every image needs, one a line)
// and rootfs/, which is laid out as it is in the image. Modes come from the Tree, not from here.
//
//go:embed *.lock.yaml modules packages all:rootfs
var FS embed.FS
