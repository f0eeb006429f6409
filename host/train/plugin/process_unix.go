//go:build unix && !linux

package plugin

import (
	"os"
	"os/exec"
	"sync"
	"syscall"

	"github.com/cage-qat/cage/host/train/plugin/supervisor"
)

// pluginProcess is a process that leads a group of its own, so that a Ctrl-C at the terminal
// is the host's alone and the whole group can be ended. Plugins end with the host by
// watching their standard input. Their memory is not limited.
type pluginProcess struct {
	cmd    *exec.Cmd
	mu     sync.Mutex
	reaped bool
}

func (r *pluginProcess) launch(path string, env []string, stdin, stdout, stderr *os.File, _ uint64) error {
	r.cmd = exec.Command(path)
	r.cmd.Env = env
	r.cmd.Stdin, r.cmd.Stdout, r.cmd.Stderr = stdin, stdout, stderr
	r.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return supervisor.Explain(path, r.cmd.Start())
}

func (r *pluginProcess) pid() int { return r.cmd.Process.Pid }

func (r *pluginProcess) reap() {
	_ = r.cmd.Wait() // how it ended is in ProcessState
	r.mu.Lock()
	defer r.mu.Unlock()
	killGroup(r.cmd.Process.Pid)
	r.reaped = true
}

func (r *pluginProcess) status() (syscall.WaitStatus, bool) {
	status, ok := r.cmd.ProcessState.Sys().(syscall.WaitStatus)
	return status, ok
}

// kill ends the whole process group at once; also one that is stopped. After the
// end it does nothing: the group's number may be somebody else's by then.
func (p *process) kill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.reaped {
		killGroup(p.cmd.Process.Pid)
	}
}

func killGroup(pid int) { _ = syscall.Kill(-pid, syscall.SIGKILL) }
