package plugin

import (
	"cmp"
	"context"
	"io"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/hashicorp/go-hclog"
	goplugin "github.com/hashicorp/go-plugin"
	"github.com/hashicorp/go-plugin/runner"

	"github.com/cage-qat/cage/internal/safetext"
	"github.com/cage-qat/cage/sdk/client"
)

// checkHandshake checks the line with which a plugin announces its address for mistakes that users
// can fix, and reports whether it contains a certificate. The format of the line is
//
//	CORE|PROTOCOL|NETWORK|ADDRESS|grpc|CERTIFICATE
func checkHandshake(line string) (certified bool, err *Error) {
	parts := strings.Split(strings.TrimSpace(line), "|")
	if len(parts) < 4 {
		return false, failure(ErrProtocol, "printed %q instead of the handshake; is it a cage plugin? "+
			"A plugin must not print to standard output before it serves", safetext.Clip(line, 200))
	}
	if parts[0] != strconv.Itoa(goplugin.CoreProtocolVersion) {
		return false, failure(ErrVersion, "speaks version %.20q of the go-plugin handshake, this host "+
			"speaks %d: rebuild the plugin with a current SDK", parts[0], goplugin.CoreProtocolVersion)
	}
	if version, err := strconv.Atoi(parts[1]); err != nil || version != client.ProtocolVersion {
		what := "rebuild the plugin with a current SDK"
		if version > client.ProtocolVersion {
			what = "update cage"
		}
		return false, failure(ErrVersion, "speaks version %.20s of the plugin protocol, this host "+
			"speaks %d: %s", parts[1], client.ProtocolVersion, what)
	}
	return len(parts) > 5 && parts[5] != "", nil
}

// launcher starts a process for go-plugin. It replaces go-plugin's own runner, because go-plugin
//   - panics on some JSON lines on standard error (TestOutput, FuzzParseLog);
//   - waits forever in Kill for a process that is stopped (TestStoppedProcess);
//   - leaves the plugin's children running, and also the plugin if the host is killed
//     (TestChildrenOfThePlugin, TestNoOrphans).
//
// So launcher only passes the handshake to go-plugin, and nothing from standard error. go-plugin's
// SecureConfig is not used either: it checks the executable of go-plugin's own command, which is
// not used here, and hashes are needed even if none is pinned (TestPinnedChecksum).
type launcher struct {
	executable string
	env        []string
	logger     hclog.Logger
	// socketDir is the directory that go-plugin has created for the socket.
	socketDir string
	// certified is set if the plugin has sent a certificate.
	certified atomic.Bool

	mu      sync.Mutex
	process *process
	cause   *Error
}

var _ runner.Runner = (*launcher)(nil)

// run implements go-plugin's RunnerFunc. Of cmd, only the environment is used.
func (l *launcher) run(_ hclog.Logger, cmd *exec.Cmd, socketDir string) (runner.Runner, error) {
	l.env, l.socketDir = append(l.env, cmd.Env...), socketDir
	return l, nil
}

// Start starts the process.
func (l *launcher) Start(context.Context) error {
	p, err := startProcess(l.executable, l.env, l.logger)
	if err != nil {
		return err
	}
	l.mu.Lock()
	l.process = p
	failed := l.cause != nil
	l.mu.Unlock()
	if failed { // fail was called in the meantime
		p.kill()
	}
	return nil
}

// fail kills the plugin and records the cause, unless one has been recorded before.
func (l *launcher) fail(cause *Error) {
	l.mu.Lock()
	l.cause = cmp.Or(l.cause, cause)
	p := l.process
	l.mu.Unlock()
	if p != nil {
		p.kill()
	}
}

// current returns the process and the cause passed to fail. Both may be nil.
func (l *launcher) current() (*process, *Error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.process, l.cause
}

// Wait waits until the process has ended.
func (l *launcher) Wait(context.Context) error {
	<-l.process.exited
	return nil
}

// Kill kills the process.
func (l *launcher) Kill(context.Context) error {
	if p, _ := l.current(); p != nil {
		p.kill()
	}
	return nil
}

// Stdout returns a reader that yields the handshake and then blocks until the process has ended.
func (l *launcher) Stdout() io.ReadCloser {
	r, w := io.Pipe()
	go func() {
		if line, ok := <-l.process.handshake; !ok {
			l.fail(failure(ErrStart, "%s before it was ready", l.process.ending()))
		} else if certified, err := checkHandshake(line); err != nil {
			l.fail(err)
		} else {
			l.certified.Store(certified)
			_, _ = io.WriteString(w, line+"\n")
		}
		<-l.process.exited
		_ = w.Close()
	}()
	return r
}

// Stderr returns an empty reader, because startProcess reads the process's standard error.
func (l *launcher) Stderr() io.ReadCloser { return io.NopCloser(strings.NewReader("")) }

// Name returns the path of the executable.
func (l *launcher) Name() string { return l.executable }

// ID returns the process ID.
func (l *launcher) ID() string {
	if p, _ := l.current(); p != nil {
		return strconv.Itoa(p.pid())
	}
	return ""
}

// Diagnose returns "", because Client.explain and startError explain errors.
func (l *launcher) Diagnose(context.Context) string { return "" }

// PluginToHost returns addresses unchanged.
func (l *launcher) PluginToHost(network, address string) (string, string, error) {
	return network, address, nil
}

// HostToPlugin returns addresses unchanged.
func (l *launcher) HostToPlugin(network, address string) (string, string, error) {
	return network, address, nil
}
