//go:build !linux

package plugin

import (
	"syscall"
	"time"
)

// endWithParent does nothing. Plugins exit when the host ends because their standard input closes.
func endWithParent(*syscall.SysProcAttr) {}

// processorTime returns 0: it is unknown.
func processorTime(int) time.Duration { return 0 }
