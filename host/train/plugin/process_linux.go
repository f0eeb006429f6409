package plugin

import (
	"math"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cage-qat/cage/host/train/plugin/supervisor"
)

// abandonAfter is how long the supervisor may take to kill what is below it.
const abandonAfter = 2 * time.Second

// pluginProcess is a process below a supervisor, which ends with this one and takes with it
// whatever the plugin has started.
type pluginProcess struct {
	supervised *supervisor.Process
	result     syscall.WaitStatus
	known      bool
}

func (r *pluginProcess) launch(path string, env []string, stdin, stdout, stderr *os.File, memory uint64) (err error) {
	r.supervised, err = supervisor.Start(path, env, stdin, stdout, stderr, memory)
	return err
}

func (r *pluginProcess) pid() int { return r.supervised.PID }

func (r *pluginProcess) reap() { r.result, r.known = r.supervised.Wait() }

func (r *pluginProcess) status() (syscall.WaitStatus, bool) { return r.result, r.known }

// kill ends the process and all its descendants at once; also one that is stopped.
func (p *process) kill() {
	p.supervised.Kill()
	time.AfterFunc(abandonAfter, func() {
		select {
		case <-p.exited:
		default:
			p.supervised.Abandon()
		}
	})
}

// machineMemory is the memory of the machine, or that of the container if it is less.
func machineMemory() uint64 {
	var info unix.Sysinfo_t
	if unix.Sysinfo(&info) != nil {
		return 0
	}
	total := uint64(info.Totalram) * uint64(info.Unit)
	for _, file := range []string{"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"} {
		text, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		if limit, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64); err == nil {
			total = min(total, limit)
		}
	}
	return total
}

func hardLimit() uint64 {
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_DATA, &limit) != nil {
		return math.MaxUint64
	}
	return limit.Max // RLIM_INFINITY is the largest number
}
