package systemd

import "golang.org/x/sys/unix"

// SetHostname sets the kernel's host name, unless it is set already. It needs CAP_SYS_ADMIN, and a unit without
// ProtectHostname=.
func SetHostname(name string) error {
	var u unix.Utsname
	if err := unix.Uname(&u); err == nil && unix.ByteSliceToString(u.Nodename[:]) == name {
		return nil
	}
	return unix.Sethostname([]byte(name))
}
