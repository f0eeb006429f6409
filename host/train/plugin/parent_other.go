//go:build !linux

package plugin

import "syscall"

// endWithParent does nothing. Plugins exit when the host ends because their standard input closes.
func endWithParent(*syscall.SysProcAttr) {}
