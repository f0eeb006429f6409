package plugin

import (
	"errors"
	"fmt"
	"strings"

	"github.com/cage-qat/cage/internal/safetext"
)

// Kinds of failures, to be tested with [errors.Is].
var (
	// ErrNotFound means that there is no plugin with the given name, or no executable at the path.
	ErrNotFound = errors.New("plugin not found")
	// ErrBuild means that the plugin's Go source does not build.
	ErrBuild = errors.New("plugin does not build")
	// ErrChecksum means that the executable does not have the pinned hash.
	ErrChecksum = errors.New("plugin checksum mismatch")
	// ErrStart means that the process could not be started, or ended before it was ready.
	ErrStart = errors.New("plugin did not start")
	// ErrVersion means that the plugin uses an unsupported version of the protocol.
	ErrVersion = errors.New("unsupported plugin protocol version")
	// ErrProtocol means that the plugin violated the protocol, for example with an invalid program.
	ErrProtocol = errors.New("plugin violated the protocol")
	// ErrKind means that the plugin is a quantizer where an optimizer is needed, or vice versa.
	ErrKind = errors.New("wrong kind of plugin")
	// ErrShutdown means that the process ended, or was stopped by Close.
	ErrShutdown = errors.New("plugin ended")
	// ErrTimeout means that the plugin did not answer within the time limit.
	ErrTimeout = errors.New("plugin took too long")
	// ErrRefused means that the plugin does not accept a site or tensor with its parameters. The
	// cause is an *sdk.Refusal with the reason.
	ErrRefused = errors.New("plugin refused")
	// ErrFailed means that the plugin's code failed: with a panic, a program that cannot be built
	// or any error that is not a refusal.
	ErrFailed = errors.New("plugin failed")
)

// Error is a failure of a plugin. Its message is for the user who configured the plugin.
type Error struct {
	// Plugin is the requested name or path; Path is the executable, if known.
	Plugin, Path string
	// Site is the name of the site or tensor that the failed call was about, if any.
	Site string
	// Kind is one of the errors above, or the error of a canceled context.
	Kind error
	// Err is the cause.
	Err error
	// Output holds the last lines printed by the plugin, if they may explain the failure.
	Output []string
}

// longest is the length in bytes to which messages are truncated, because plugins control parts of
// them.
const longest = 4096

// Error returns a message with the plugin, the site, the cause and the plugin's last output.
func (e *Error) Error() string {
	var s strings.Builder
	fmt.Fprintf(&s, "plugin %s", safetext.Line(e.Plugin))
	if e.Path != "" && e.Path != e.Plugin {
		fmt.Fprintf(&s, " (%s)", safetext.Line(e.Path))
	}
	if e.Site != "" {
		fmt.Fprintf(&s, ": %s", safetext.Line(e.Site))
	}
	// Indent all lines but the first, so that they cannot be mistaken for messages of the host.
	for i, line := range strings.Split(safetext.Text(safetext.Clip(e.Err.Error(), longest)), "\n") {
		switch {
		case i == 0:
			line = ": " + line
		case strings.HasPrefix(line, " "):
			line = "\n" + line
		default:
			line = "\n  " + line
		}
		s.WriteString(line)
	}
	if len(e.Output) > 0 {
		s.WriteString("\nthe last lines that it printed:")
		for _, line := range e.Output {
			s.WriteString("\n  | " + safetext.Line(line))
		}
	}
	return s.String()
}

// Unwrap returns Kind and Err.
func (e *Error) Unwrap() []error { return []error{e.Kind, e.Err} }

func failure(kind error, format string, args ...any) *Error {
	return &Error{Kind: kind, Err: fmt.Errorf(format, args...)}
}
