package unit

import (
	"path"
	"strings"
)

// OnDebian returns the tree together with Debian's files below it: the programs that units may run, and the links from
// /bin, /sbin and /lib to /usr.
func OnDebian(tree Tree) Tree { return onDebian{tree} }

type onDebian struct{ tree Tree }

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
