package plugin

import (
	"context"
	"io"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/go-plugin/runner"
)

// launcher starts a process for go-plugin and stands between the two: go-plugin
// sees a checked handshake on the standard output and nothing on the standard
// error.
type launcher struct {
	executable string
	env        []string
	memory     uint64
	logger     hclog.Logger
	// socketDir is the directory that go-plugin made for the socket.
	socketDir string
	// certified says that the plugin has given a certificate.
	certified atomic.Bool

	mu      sync.Mutex
	process *process
	cause   *Error
}

var _ runner.Runner = (*launcher)(nil)

// run has the form of go-plugin's RunnerFunc; cmd carries the environment.
func (l *launcher) run(_ hclog.Logger, cmd *exec.Cmd, socketDir string) (runner.Runner, error) {
	l.env, l.socketDir = append(l.env, cmd.Env...), socketDir
	return l, nil
}

// Start starts the process.
func (l *launcher) Start(context.Context) error {
	p, err := startProcess(l.executable, l.env, l.memory, l.logger)
	if err != nil {
		return err
	}
	l.mu.Lock()
	l.process = p
	failed := l.cause != nil
	l.mu.Unlock()
	if failed { // given up in the meantime
		p.kill()
	}
	return nil
}

// fail kills the plugin and records why; the first reason stays.
func (l *launcher) fail(cause *Error) {
	l.mu.Lock()
	if l.cause == nil {
		l.cause = cause
	}
	p := l.process
	l.mu.Unlock()
	if p != nil {
		p.kill()
	}
}

// current returns the process and the reason for giving it up; each may be nil.
func (l *launcher) current() (*process, *Error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.process, l.cause
}

// Wait waits for the end of the process.
func (l *launcher) Wait(context.Context) error {
	<-l.process.exited
	return nil
}

// Kill ends the process.
func (l *launcher) Kill(context.Context) error {
	if p, _ := l.current(); p != nil {
		p.kill()
	}
	return nil
}

// Stdout yields the handshake and then blocks until the process has ended.
func (l *launcher) Stdout() io.ReadCloser {
	r, w := io.Pipe()
	go func() {
		if line, err := l.handshake(); err != nil {
			l.fail(err)
		} else {
			_, _ = io.WriteString(w, line+"\n")
		}
		<-l.process.exited
		_ = w.Close()
	}()
	return r
}

// handshake waits for the first line of the process.
func (l *launcher) handshake() (string, *Error) {
	line, ok := <-l.process.handshake
	if ok {
		checked, certified, err := checkHandshake(line)
		l.certified.Store(certified)
		return checked, err
	}
	select {
	case <-l.process.exited:
		return "", failure(ErrStart, "%s before it was ready", l.process.ending())
	case <-time.After(deathNotice):
		return "", failure(ErrProtocol, "closed its standard output before the handshake")
	}
}

// Stderr is empty: the process's standard error is read elsewhere.
func (l *launcher) Stderr() io.ReadCloser { return io.NopCloser(strings.NewReader("")) }

// Name is the path of the executable.
func (l *launcher) Name() string { return l.executable }

// ID is the process's number.
func (l *launcher) ID() string {
	if p, _ := l.current(); p != nil {
		return strconv.Itoa(p.pid())
	}
	return ""
}

// Diagnose adds nothing: errors are put in words elsewhere.
func (l *launcher) Diagnose(context.Context) string { return "" }

// PluginToHost leaves addresses as they are.
func (l *launcher) PluginToHost(network, address string) (string, string, error) {
	return network, address, nil
}

// HostToPlugin leaves addresses as they are.
func (l *launcher) HostToPlugin(network, address string) (string, string, error) {
	return network, address, nil
}
