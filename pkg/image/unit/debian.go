package unit

import (
	"path"
	"strings"
)

// OnDebian returns the tree together with Debian's files below it: the programs that units may run, and the links from
// /bin, /sbin and /lib to /usr.
func OnDebian(tree Tree) Tree { return onDebian{tree} }

type onDebian struct{ tree Tree }

// OnDebianWithMore is OnDebian for an image with further packages, whose files are not known before they are installed: every
// path where packages put programs and configuration may be there.
func OnDebianWithMore(tree Tree) Tree { return withMore{OnDebian(tree)} }

type withMore struct{ Tree }

func (t withMore) Has(file string) bool {
	file = path.Clean(file)
	for _, dir := range []string{"/bin/", "/sbin/", "/lib/", "/usr/bin/", "/usr/sbin/", "/usr/lib/", "/usr/libexec/", "/usr/share/", "/etc/"} {
		if strings.HasPrefix(file, dir) {
			return true
		}
	}
	return t.Tree.Has(file)
}

func (d onDebian) Has(file string) bool {
	file = path.Clean(file)
	merged := file
	for _, dir := range []string{"/bin/", "/sbin/", "/lib/"} {
		if strings.HasPrefix(file, dir) {
			merged = "/usr" + file
		}
	}
	return d.tree.Has(file) || d.tree.Has(merged) || debianHas(merged)
}

// debianHas knows programs of the packages that every image has: the essential set and images/packages.
func debianHas(program string) bool {
	switch program {
	case "/usr/bin/sh", // dash
		"/usr/bin/systemctl",                // systemd
		"/usr/bin/udevadm",                  // udev
		"/usr/sbin/modprobe",                // kmod
		"/usr/sbin/nft",                     // nftables
		"/usr/bin/ip",                       // iproute2
		"/usr/bin/mount", "/usr/bin/umount": // mount
		return true
	}
	return false
}
