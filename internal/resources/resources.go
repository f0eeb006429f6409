// Package resources returns the resource usage of this process, or 0 where the system does not
// report it.
package resources

import (
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// ProcessorTime returns the processor time that all threads of this process have used, in
// user mode and in the system.
func ProcessorTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// PeakMemory returns the largest resident size of this process so far, in bytes.
func PeakMemory() int64 { return status("VmHWM:") }

// Memory returns the current resident size of this process, in bytes.
func Memory() int64 { return status("VmRSS:") }

// status returns a size in bytes that Linux reports for this process.
func status(name string) int64 {
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, name); ok {
			kib, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			if err != nil {
				return 0
			}
			return kib << 10
		}
	}
	return 0
}
