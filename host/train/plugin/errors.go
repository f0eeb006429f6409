package plugin

import (
	"errors"
	"fmt"
	"strings"

	"github.com/cage-qat/cage/internal/safetext"
)

// The kinds of failure; test for them with errors.Is.
var (
	// ErrNotFound: there is no plugin of that name, or no executable at that path.
	ErrNotFound = errors.New("plugin not found")
	// ErrBuild: the plugin is Go source that does not build.
	ErrBuild = errors.New("plugin does not build")
	// ErrChecksum: the executable does not have the pinned hash.
	ErrChecksum = errors.New("plugin has another checksum")
	// ErrStart: the process could not be started or ended before it was ready.
	ErrStart = errors.New("plugin did not start")
	// ErrVersion: the plugin has another version of the protocol.
	ErrVersion = errors.New("plugin speaks another version")
	// ErrProtocol: the plugin sent something that the protocol does not allow, such as an
	// invalid program.
	ErrProtocol = errors.New("plugin broke the protocol")
	// ErrKind: the plugin is a quantizer where an optimizer is needed, or the
	// other way around.
	ErrKind = errors.New("plugin is of another kind")
	// ErrShutdown: the process ended, or was stopped by Close.
	ErrShutdown = errors.New("plugin ended")
	// ErrTimeout: no answer within the time limit.
	ErrTimeout = errors.New("plugin took too long")
	// ErrRefused: the plugin does not accept the site or tensor with its settings, for the
	// reason given by the cause, an *sdk.Refusal.
	ErrRefused = errors.New("plugin refused")
	// ErrFailed: the plugin's own code failed: a panic, a program that cannot be built,
	// or any error that is not a refusal.
	ErrFailed = errors.New("plugin failed")
)

// Error is a failure of a plugin, for the person who named it.
type Error struct {
	// Plugin is the requested name or path; Path is the executable, if known.
	Plugin, Path string
	// Site is the site or tensor of the failed call, if any.
	Site string
	// Kind is one of the errors above, or the error of a cancelled context.
	Kind error
	// Err is the cause.
	Err error
	// Output holds the last lines that the plugin printed, if they may explain the failure.
	Output []string
}

// longest is the length to which messages are truncated: some quote a plugin.
const longest = 4096

// Error names the plugin and the cause, followed by the plugin's last output.
func (e *Error) Error() string {
	var s strings.Builder
	fmt.Fprintf(&s, "plugin %s", safetext.Line(e.Plugin))
	if e.Path != "" && e.Path != e.Plugin {
		fmt.Fprintf(&s, " (%s)", safetext.Line(e.Path))
	}
	if e.Site != "" {
		fmt.Fprintf(&s, ": %s", safetext.Line(e.Site))
	}
	// All lines but the first are indented, so that none can be mistaken for a message of the host.
	for i, line := range strings.Split(safetext.Text(clip(e.Err.Error(), longest)), "\n") {
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

// Unwrap returns the kind and the cause.
func (e *Error) Unwrap() []error { return []error{e.Kind, e.Err} }

func failure(kind error, format string, args ...any) *Error {
	return &Error{Kind: kind, Err: fmt.Errorf(format, args...)}
}

func clip(s string, most int) string {
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}
