package main

import (
	"errors"
	"io"
	"os"
	"sync"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/cage-qat/cage/internal/safetext"
)

// outlet is the standard output or error of this process. All text goes through it,
// escaped as package safetext says; only progress displays write past it.
//
// Writing to a reader that is gone is no failure: it has seen what it wanted. This concerns
// commands that outlast their readers (see [outlasts]); SIGPIPE silently ends the others.
type outlet struct {
	file *os.File
	mu   sync.Mutex
	err  error // of the first write that failed
}

// Write implements io.Writer.
func (o *outlet) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	n, err := safetext.NewWriter(o.file).Write(p)
	if errors.Is(err, syscall.EPIPE) {
		return len(p), nil
	}
	if o.err == nil {
		o.err = err
	}
	return n, err
}

// failed is the first error of writing. Most callers do not look at the errors of their
// writes, so that it is reported when the command has ended.
func (o *outlet) failed() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.err
}

// drawing is where a progress display draws: the file itself, if w is an outlet.
func drawing(w io.Writer) io.Writer {
	if o, ok := w.(*outlet); ok {
		return o.file
	}
	return w
}

// outlasts makes a command go on when nobody reads its output any more, as after `| head`,
// or when Ctrl-C has ended a tee behind it. It is for commands whose work matters more than
// what they print.
func outlasts(cmd *cobra.Command) *cobra.Command {
	cmd.PreRun = func(*cobra.Command, []string) { keepWriting() }
	return cmd
}
