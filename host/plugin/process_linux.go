package plugin

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// groupAttributes give a plugin a process group, so that a Ctrl-C at the terminal
// is the host's alone and the whole group can be ended, and tie its life to the
// host's, even if it ignores that its standard input was closed.
func groupAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// reap waits for the end of the process and kills what is left of its group while
// the group's number is still taken.
func (p *process) reap() {
	pid := p.cmd.Process.Pid
	for unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil) == unix.EINTR {
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	killGroup(pid)
	_ = p.cmd.Wait() // how it ended is in ProcessState
	p.reaped = true
}

func killGroup(pid int) { _ = syscall.Kill(-pid, syscall.SIGKILL) }
