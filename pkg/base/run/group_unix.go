//go:build unix

package run

import (
	"os"
	"syscall"
)

// ownSession starts a process without a terminal.
func ownSession() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }

// endGroup asks the processes of a group to end.
func endGroup(p *os.Process) error { return syscall.Kill(-p.Pid, syscall.SIGTERM) }

// killGroup ends the processes of a group; for an empty one it is ESRCH, which is fine.
func killGroup(p *os.Process) { _ = syscall.Kill(-p.Pid, syscall.SIGKILL) }
