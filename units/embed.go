// Package units holds the systemd units of the image, one file each. Code takes FS; the files are what
// systemd reads.
package units

import "embed"

// FS holds the unit files at its root.
//
//go:embed *.service *.slice *.timer
var FS embed.FS
