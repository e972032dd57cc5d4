package run

import "syscall"

// ownGroup starts a process in a group of its own, which ends with us.
func ownGroup() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
