package plugin

import (
	"context"
	"crypto/x509"
	"encoding/base64"
	"io"
	"net/netip"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	goplugin "github.com/hashicorp/go-plugin"
	"github.com/hashicorp/go-plugin/runner"

	"github.com/cage-qat/cage/sdk/client"
)

// checkHandshake verifies the line by which a plugin says where it listens:
//
//	CORE|PROTOCOL|NETWORK|ADDRESS|grpc|CERTIFICATE
//
// and returns it in exactly this form for go-plugin, which does not check it. The
// certificate may be absent.
func checkHandshake(line string) (checked string, certified bool, err *Error) {
	parts, err := splitHandshake(line)
	if err != nil {
		return "", false, err
	}
	if len(parts) > 5 && parts[5] != "" {
		if err := checkCertificate(parts[5]); err != nil {
			return "", false, err
		}
		return strings.Join(parts[:6], "|"), true, nil
	}
	return strings.Join(parts[:5], "|"), false, nil
}

// splitHandshake returns the fields of the line, of which the first five are right.
func splitHandshake(line string) ([]string, *Error) {
	parts := strings.Split(strings.TrimSpace(line), "|")
	if len(parts) < 4 {
		return nil, failure(ErrProtocol, "printed %q instead of the handshake; is it a cage plugin? A plugin must not print to standard output before it serves", clip(line, 200))
	}
	if parts[0] != strconv.Itoa(goplugin.CoreProtocolVersion) {
		return nil, failure(ErrVersion, "speaks version %.20q of the go-plugin handshake, this host speaks %d: rebuild the plugin with a current SDK", parts[0], goplugin.CoreProtocolVersion)
	}
	if err := checkProtocol(parts[1]); err != nil {
		return nil, err
	}
	if err := checkAddress(parts[2], parts[3]); err != nil {
		return nil, err
	}
	if len(parts) < 5 || parts[4] != string(goplugin.ProtocolGRPC) {
		return nil, failure(ErrProtocol, "does not offer grpc; its handshake is %q", clip(line, 200))
	}
	return parts, nil
}

// maxCertificate is the length in characters of the longest certificate that is
// accepted; go-plugin's have about 700.
const maxCertificate = 16 << 10

// checkCertificate verifies that a field is a certificate, DER in base64.
func checkCertificate(text string) *Error {
	if len(text) > maxCertificate {
		return failure(ErrProtocol, "offers a certificate of %d characters; at most %d are accepted", len(text), maxCertificate)
	}
	der, err := base64.RawStdEncoding.DecodeString(text)
	if err == nil {
		_, err = x509.ParseCertificate(der)
	}
	if err != nil {
		return failure(ErrProtocol, "offers a TLS certificate that cannot be read: %w", err)
	}
	return nil
}

func checkProtocol(text string) *Error {
	version, err := strconv.Atoi(text)
	switch {
	case err != nil:
		return failure(ErrProtocol, "gives the protocol version %.20q, which is not a number", text)
	case version > client.ProtocolVersion:
		return failure(ErrVersion, "speaks version %d of the plugin protocol, this host speaks %d: update cage", version, client.ProtocolVersion)
	case version < client.ProtocolVersion:
		return failure(ErrVersion, "speaks version %d of the plugin protocol, this host speaks %d: rebuild the plugin with a current SDK", version, client.ProtocolVersion)
	}
	return nil
}

// checkAddress accepts Unix sockets and, for languages whose gRPC lacks these,
// TCP on this machine.
func checkAddress(network, address string) *Error {
	switch network {
	case "unix":
		if address != "" {
			return nil
		}
	case "tcp":
		if a, err := netip.ParseAddrPort(address); err == nil && a.Addr().IsLoopback() {
			return nil
		}
	}
	return failure(ErrProtocol, "listens on %.20q %.100q: must be a unix socket or tcp on 127.0.0.1", network, address)
}

// launcher starts a process for go-plugin, whose own runner is not used, because go-plugin
//   - does not check the handshake, such as an address on another machine (TestFailuresAtStart);
//   - panics at some lines of standard error that are JSON (TestOutput, FuzzParseLog);
//   - waits without end for a process that is stopped, in Kill (TestStoppedProcess);
//   - leaves the plugin's children, and the plugin when the host is killed (TestNoDescendantsStay,
//     TestNoOrphans).
//
// So go-plugin sees a checked handshake on the standard output and nothing on the standard error.
// Its SecureConfig checks the path of its own command, which there is none of here, and the hash of
// a plugin is recorded where it is not pinned, too (TestPinnedChecksum).
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
