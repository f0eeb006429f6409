// Package resources reports the resource usage of this process. Its functions return 0 if the
// system does not provide a value.
package resources

import (
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// ProcessorTime returns the CPU time used by all threads of this process, in user and system mode.
func ProcessorTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// PeakMemory returns the peak resident set size of this process, in bytes.
func PeakMemory() int64 { return status("VmHWM:") }

// Memory returns the current resident set size of this process, in bytes.
func Memory() int64 { return status("VmRSS:") }

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
