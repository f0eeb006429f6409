package plugin

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"
)

// drainTime limits how long output is read after the process has ended, because a child of it that
// is still running may hold the pipes open.
const drainTime = 300 * time.Millisecond

// process is a plugin's process. It leads its own process group, so that Ctrl-C at the terminal
// reaches only the host, and the whole group can be killed.
type process struct {
	cmd *exec.Cmd
	// parentPipe is the plugin's standard input. It closes when the host ends, and the plugin then
	// exits.
	parentPipe io.Closer
	// handshake receives the first line of standard output. It is closed after the process ends.
	handshake chan string
	output    *output
	// exited is closed when the process has ended, its output was read and its group was killed.
	exited chan struct{}

	mu     sync.Mutex
	reaped bool
}

// startProcess starts the executable. Its output goes to the logger.
func startProcess(path string, env []string, logger hclog.Logger) (*process, error) {
	p := &process{cmd: exec.Command(path), handshake: make(chan string, 1),
		output: &output{log: logger}, exited: make(chan struct{})}
	stdout, stdoutWriter := io.Pipe()
	stderr, stderrWriter := io.Pipe()
	p.cmd.Env, p.cmd.WaitDelay = env, drainTime
	p.cmd.Stdout, p.cmd.Stderr = stdoutWriter, stderrWriter
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	endWithParent(p.cmd.SysProcAttr)
	var err error
	if p.parentPipe, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	started := make(chan error)
	go func() {
		// On Linux, the kernel kills the process when the thread that started it exits.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := p.cmd.Start()
		started <- err
		if err != nil {
			return
		}
		var lines sync.WaitGroup
		lines.Go(func() {
			first := true
			eachLine(stdout, func(line string) {
				if first {
					first = false
					p.handshake <- line
					return
				}
				p.output.line(line)
			})
		})
		lines.Go(func() { eachLine(stderr, p.output.line) })
		_ = p.cmd.Wait() // how it ended is in ProcessState
		p.mu.Lock()
		p.killGroup()
		p.reaped = true
		p.mu.Unlock()
		_, _ = stdoutWriter.Close(), stderrWriter.Close()
		lines.Wait()
		close(p.handshake)
		close(p.exited)
	}()
	if err = <-started; err == nil {
		return p, nil
	}
	_, missing := os.Stat(path)
	switch {
	case errors.Is(err, syscall.ENOEXEC):
		err = fmt.Errorf("%s is neither a program for this machine nor a script whose first line "+
			"names an interpreter (#!)", path)
	case errors.Is(err, fs.ErrNotExist) && missing == nil:
		err = fmt.Errorf("the interpreter of %s, as named in its first line (#!), or a loader "+
			"that it needs, does not exist", path)
	}
	return nil, err
}

func (p *process) pid() int { return p.cmd.Process.Pid }

// kill kills the whole process group, even if it is stopped. After the process has been reaped, it
// does nothing, because the ID of the group may have been reused.
func (p *process) kill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.reaped {
		p.killGroup()
	}
}

func (p *process) killGroup() { _ = syscall.Kill(-p.pid(), syscall.SIGKILL) }

// ending returns a phrase with the exit status of the process, or the signal that ended it.
func (p *process) ending() string {
	status := p.cmd.ProcessState.Sys().(syscall.WaitStatus)
	if status.Signaled() {
		return fmt.Sprintf("was ended by signal: %v", status.Signal())
	}
	return fmt.Sprintf("exited with status %d", status.ExitStatus())
}
