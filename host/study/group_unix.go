//go:build unix

package study

import "syscall"

// ownGroup gives a process a group of its own: a Ctrl-C at the terminal is the study's
// alone, which lets the process end in order.
func ownGroup() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
