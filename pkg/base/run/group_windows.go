package run

import (
	"os"
	"syscall"

	"golang.org/x/sys/windows"
)

// ownGroup starts a process in a group of its own, so that Ctrl-C reaches only us.
func ownGroup() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{CreationFlags: windows.CREATE_NEW_PROCESS_GROUP}
}

// ownSession starts a process without our console.
func ownSession() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{CreationFlags: windows.CREATE_NEW_PROCESS_GROUP | windows.DETACHED_PROCESS}
}

// endGroup ends the process: Windows has no SIGTERM, and no group to send it to.
func endGroup(p *os.Process) error { return p.Kill() }

func killGroup(p *os.Process) { _ = p.Kill() }
