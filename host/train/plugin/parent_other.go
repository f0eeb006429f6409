//go:build !linux

package plugin

import "syscall"

// endWithParent does nothing: plugins end with the host because they watch their standard input.
func endWithParent(*syscall.SysProcAttr) {}
