// Package resources tells what this process has used of the machine, as far as the system
// tells: 0 where it does not.
package resources

import (
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// ProcessorTime is the processor time that this process has used, of all threads, in user
// mode and in the system.
func ProcessorTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// PeakMemory is the largest resident size of this process so far, in bytes.
func PeakMemory() int64 { return status("VmHWM:") }

// Memory is the resident size of this process now, in bytes.
func Memory() int64 { return status("VmRSS:") }

// status is a size that Linux tells of this process, in bytes.
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
