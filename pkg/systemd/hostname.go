package systemd

import "golang.org/x/sys/unix"

// SetHostname gives the kernel its name, unless it has it already. It needs CAP_SYS_ADMIN, and a unit that has
// no ProtectHostname=.
func SetHostname(name string) error {
	var u unix.Utsname
	if err := unix.Uname(&u); err == nil && unix.ByteSliceToString(u.Nodename[:]) == name {
		return nil
	}
	return unix.Sethostname([]byte(name))
}
