package plugin

import (
	"os"
	"syscall"
	"time"

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

// pid is the number of the plugin's process.
func (r *pluginProcess) pid() int { return r.supervised.PID }

// reap waits for the end of the process and of all that it has started.
func (r *pluginProcess) reap() { r.result, r.known = r.supervised.Wait() }

// status says how the process ended, after reap.
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
