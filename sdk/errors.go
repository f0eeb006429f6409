package sdk

import (
	"fmt"
	"path/filepath"
	"runtime"
	"strings"
)

// Kind is the kind of a plugin: quantizer or optimizer.
type Kind string

// The kinds of plugins.
const (
	KindQuantizer Kind = "quantizer"
	KindOptimizer Kind = "optimizer"
)

// Refusal is a plugin's answer that it does not support a site or tensor with these settings: a
// limit of the algorithm, not a mistake in anybody's code. The user sees it in the author's words.
type Refusal struct{ Err error }

// Refuse returns a [*Refusal] with a message formatted as by fmt.Errorf. The message should say
// what is not accepted and suggest a valid setting: "rows of 7 cannot be packed: use a multiple of
// 8". A host treats every other error that an author's method returns, and every panic, as a
// mistake in the plugin.
func Refuse(format string, args ...any) error { return &Refusal{fmt.Errorf(format, args...)} }

// Error returns the author's message.
func (e *Refusal) Error() string { return e.Err.Error() }

// Unwrap returns the author's error.
func (e *Refusal) Unwrap() error { return e.Err }

// SiteError reports that a plugin failed to write the program for one site or tensor.
type SiteError struct {
	Kind   Kind
	Plugin string
	Site   string
	Err    error
}

// Error names the plugin, the site and the cause.
func (e *SiteError) Error() string {
	return fmt.Sprintf("%s %s: %s: %v", e.Kind, e.Plugin, e.Site, e.Err)
}

// Unwrap returns the cause.
func (e *SiteError) Unwrap() error { return e.Err }

// ParameterError reports a setting that a plugin does not accept.
type ParameterError struct {
	Plugin string
	Name   string
	// Known is true for a declared parameter with a wrong value, false for a name that
	// is not declared.
	Known bool
	Err   error
}

// Error names the plugin and the parameter, and describes the accepted values.
func (e *ParameterError) Error() string {
	return fmt.Sprintf("plugin %s: parameter %s: %v", e.Plugin, e.Name, e.Err)
}

// Unwrap returns the cause.
func (e *ParameterError) Unwrap() error { return e.Err }

// panicSite returns the file and line of the author's code that panicked: the innermost frame
// outside the runtime and the SDK. It must be called while the panic is being recovered.
func panicSite() string {
	pcs := make([]uintptr, 64)
	frames := runtime.CallersFrames(pcs[:runtime.Callers(2, pcs)])
	panicking := false
	for {
		f, more := frames.Next()
		panicking = panicking || f.Function == "runtime.gopanic"
		ours := strings.HasPrefix(f.Function, "runtime.") ||
			strings.Contains(f.Function, "/cage/sdk.") ||
			strings.Contains(f.Function, "/cage/sdk/program.") ||
			strings.Contains(f.Function, "/cage/sdk/microscaling.")
		if panicking && !ours && f.File != "" {
			return fmt.Sprintf(" (%s:%d)", filepath.Base(f.File), f.Line)
		}
		if !more {
			return ""
		}
	}
}
