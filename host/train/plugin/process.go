package plugin

import (
	"errors"
	"fmt"
	"os"
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
	pluginProcess // what it takes to end it, on this system
	// parent-death pipe is the host's end of the process's standard input. It closes when
	// the host ends, and tells the plugin to end.
	parentPipe *os.File
	// handshake receives the first line of the standard output and is closed.
	handshake chan string
	log       *throttle
	output    *output
	// exited is closed when the process has ended and its group is killed.
	exited chan struct{}
	// drained is closed when both outputs have been read to the end after that.
	drained chan struct{}
}

// startProcess starts the executable with at most so many bytes of memory. Its output
// goes to the logger.
func startProcess(path string, env []string, memory uint64, logger hclog.Logger) (*process, error) {
	p := &process{
		handshake: make(chan string, 1),
		log:       &throttle{logger: logger},
		exited:    make(chan struct{}),
		drained:   make(chan struct{}),
	}
	p.output = &output{log: p.log}
	var pipes pipes
	stdin, parentPipe := pipes.open()
	stdout, stdoutWriter := pipes.open()
	stderr, stderrWriter := pipes.open()
	if pipes.err != nil {
		pipes.close()
		return nil, pipes.err
	}
	p.parentPipe = parentPipe
	err := p.start(func() error { return p.launch(path, env, stdin, stdoutWriter, stderrWriter, memory) })
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

// start launches on a thread that lives as long as the process: on Linux the kernel
// ends the process when the thread that forked it ends.
func (p *process) start(launch func() error) error {
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := launch()
		started <- err
		if err != nil {
			return
		}
		p.reap()
		_ = p.parentPipe.Close()
		close(p.exited)
	}()
	return <-started
}

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
			p.output.line(line)
		})
		close(p.handshake)
	})
	both.Go(func() { eachLine(stderr, p.output.line) })
	both.Wait()
	p.log.close()
	_ = stdout.Close()
	_ = stderr.Close()
	close(p.drained)
}

func (p *process) ending() string {
	switch status, known := p.status(); {
	case !known:
		return "was lost: the process that watches over it has ended"
	case status.Exited():
		return fmt.Sprintf("exited with status %d", status.ExitStatus())
	case status.Signaled():
		return fmt.Sprintf("was ended by signal: %v", status.Signal())
	default:
		return fmt.Sprintf("ended with status %#x", int(status))
	}
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
