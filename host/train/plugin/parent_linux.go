package plugin

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// endWithParent makes the kernel kill the child process when this one ends for any reason.
func endWithParent(a *syscall.SysProcAttr) { a.Pdeathsig = syscall.SIGKILL }

// processorTime returns the processor time of a process group: of its processes, and of their
// children that have ended. See proc_pid_stat(5); ticks are 10 ms on all architectures.
func processorTime(group int) (total time.Duration) {
	files, _ := filepath.Glob("/proc/[0-9]*/stat") // the pattern is valid
	for _, file := range files {
		text, _ := os.ReadFile(file) // the process may have ended
		fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
		if len(fields) < 15 || fields[2] != strconv.Itoa(group) {
			continue
		}
		for _, ticks := range fields[11:15] {
			n, _ := strconv.Atoi(ticks)
			total += time.Duration(n) * 10 * time.Millisecond
		}
	}
	return total
}
