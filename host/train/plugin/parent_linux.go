package plugin

import "syscall"

// endWithParent makes the kernel kill the child process when this one ends for any reason.
func endWithParent(a *syscall.SysProcAttr) { a.Pdeathsig = syscall.SIGKILL }
