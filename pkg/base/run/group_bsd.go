//go:build unix && !linux

package run

import "syscall"

// ownGroup starts a process in a group of its own. Only Linux has a signal for the end of the parent: a child of a killed
// program lives on here.
func ownGroup() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
