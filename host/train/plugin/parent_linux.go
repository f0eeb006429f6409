package plugin

import "syscall"

// endWithParent makes the kernel kill the child process when this one ends, however it ends.
func endWithParent(a *syscall.SysProcAttr) { a.Pdeathsig = syscall.SIGKILL }
