//go:build unix && !linux

package plugin

import "syscall"

// groupAttributes give a plugin a process group, so that a Ctrl-C at the terminal
// is the host's alone and the whole group can be ended. Plugins end with the host
// by watching their standard input.
func groupAttributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// reap waits for the end of the process and kills what is left of its group.
func (p *process) reap() {
	_ = p.cmd.Wait() // how it ended is in ProcessState
	p.mu.Lock()
	defer p.mu.Unlock()
	killGroup(p.cmd.Process.Pid)
	p.reaped = true
}

func killGroup(pid int) { _ = syscall.Kill(-pid, syscall.SIGKILL) }
