package plugin

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
)

// drainTime is how long output is still read after the process has ended: a child
// of the plugin that left the process group may hold the pipes open for ever.
const drainTime = 300 * time.Millisecond

// process is a plugin's process, leader of a process group of its own.
type process struct {
	cmd *exec.Cmd
	// lifeline is the host's end of the process's standard input. It closes when
	// the host ends, and tells the plugin to end.
	lifeline *os.File
	// handshake receives the first line of the standard output and is closed.
	handshake chan string
	log       *throttle
	errors    *errorOutput
	// exited is closed when the process has ended and its group is killed.
	exited chan struct{}
	mu     sync.Mutex
	reaped bool
	// drained is closed when both outputs have been read to the end after that.
	drained chan struct{}
}

// startProcess starts the executable. Its output goes to the logger.
func startProcess(path string, env []string, logger hclog.Logger) (*process, error) {
	p := &process{
		cmd:       exec.Command(path),
		handshake: make(chan string, 1),
		log:       newThrottle(logger),
		exited:    make(chan struct{}),
		drained:   make(chan struct{}),
	}
	p.errors = &errorOutput{log: p.log}
	p.cmd.Env = env
	p.cmd.SysProcAttr = groupAttributes()
	var pipes pipes
	stdin, lifeline := pipes.open()
	stdout, stdoutWriter := pipes.open()
	stderr, stderrWriter := pipes.open()
	if pipes.err != nil {
		pipes.close()
		return nil, pipes.err
	}
	p.lifeline = lifeline
	p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = stdin, stdoutWriter, stderrWriter
	err := p.start()
	for _, theirs := range []*os.File{stdin, stdoutWriter, stderrWriter} {
		_ = theirs.Close()
	}
	if err != nil {
		pipes.close()
		return nil, err
	}
	go p.read(stdout, stderr)
	return p, nil
}

// start forks on a thread that lives as long as the process: on Linux the kernel
// kills the process when the thread that forked it ends.
func (p *process) start() error {
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := p.cmd.Start()
		started <- err
		if err != nil {
			return
		}
		p.reap()
		_ = p.lifeline.Close()
		close(p.exited)
	}()
	return <-started
}

// read follows both outputs.
func (p *process) read(stdout, stderr *os.File) {
	go func() {
		<-p.exited
		_ = stdout.SetReadDeadline(time.Now().Add(drainTime))
		_ = stderr.SetReadDeadline(time.Now().Add(drainTime))
	}()
	var both sync.WaitGroup
	both.Go(func() {
		first := true
		eachLine(stdout, func(line string) {
			if first {
				first = false
				p.handshake <- line
				return
			}
			p.log.log(hclog.Info, line)
		})
		close(p.handshake)
	})
	both.Go(func() { eachLine(stderr, p.errors.line) })
	both.Wait()
	p.log.close()
	_ = stdout.Close()
	_ = stderr.Close()
	close(p.drained)
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

// ending describes how the process ended, after exited is closed.
func (p *process) ending() string {
	state := p.cmd.ProcessState
	if state.Exited() {
		return fmt.Sprintf("exited with status %d", state.ExitCode())
	}
	return "was ended by " + state.String() // "signal: killed"
}

// pipes opens several pipes and remembers the first failure.
type pipes struct {
	files []*os.File
	err   error
}

func (p *pipes) open() (r, w *os.File) {
	if p.err != nil {
		return nil, nil
	}
	if r, w, p.err = os.Pipe(); p.err == nil {
		p.files = append(p.files, r, w)
	}
	return r, w
}

func (p *pipes) close() {
	for _, f := range p.files {
		if err := f.Close(); err != nil && !errors.Is(err, os.ErrClosed) {
			p.err = errors.Join(p.err, err)
		}
	}
}
