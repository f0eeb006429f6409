package plugin

import "syscall"

// endWithParent has the kernel kill a process when this one ends, however it ends.
func endWithParent(a *syscall.SysProcAttr) { a.Pdeathsig = syscall.SIGKILL }
