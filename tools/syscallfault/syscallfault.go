// Package syscallfault runs a command and stops it, together with all processes that it starts,
// before each system call that changes a file or a directory. The caller then lets the call happen
// or kills the process. Thus a program can be made to crash at any chosen point instead of at
// random.
//
// It uses seccomp notifications, which need neither a debugger nor root privileges; other system
// calls run at full speed. It works on Linux 5.19 and later; elsewhere, [Supported] returns an
// error. Command crashtest uses it to choose where to crash.
package syscallfault

import (
	"errors"
	"time"
)

// Call describes a system call that is about to happen.
type Call struct {
	Name  string // name of the system call
	Path  string // absolute path of the file or directory
	To    string // new path, for a rename or link
	Bytes int    // number of bytes to be written; 0 for other calls
	PID   int    // process that makes the call
	Root  bool   // whether that process is the command itself, rather than one that it has started
}

// Verdict says what to do with a call.
type Verdict int

const (
	// Continue lets the call happen.
	Continue Verdict = iota
	// KillCaller sends SIGKILL to the calling process. The call does not happen.
	KillCaller
	// KillAll sends SIGKILL to the command and all processes that it has started.
	KillAll
)

// Decision is a verdict and, for a write, how to carry it out.
type Decision struct {
	Verdict Verdict
	// Torn means that the first half of the bytes is written before the kill.
	Torn bool
}

// Command describes a command to run.
type Command struct {
	Args   []string // program, as an absolute path, and its arguments
	Dir    string   // working directory
	Env    []string // environment; nil: that of this process
	Output string   // file to which standard output and standard error are appended
	// Grace is how long processes may outlive the command before they count as orphans.
	Grace time.Duration
}

// Report describes how a command ended.
type Report struct {
	Code   int  // exit code; -1 if it was killed
	Killed bool // whether it was killed by SIGKILL
	// processes that outlived the command by more than Command.Grace, and were then killed
	Orphans []int
	Calls   int    // number of calls that were decided on
	State   string // how it ended, as described by the system
}

// ErrUnsupported is returned if the kernel has no seccomp notifications, or a sandbox forbids them.
var ErrUnsupported = errors.New("this system does not pass system calls to another process " +
	"(Linux 5.19 or later does, unless a sandbox forbids it)")
