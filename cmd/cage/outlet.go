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
// escaped as package safetext says, but for what draws on the terminal.
//
// Writing to a reader that is gone is no failure: it has seen what it wanted. Short
// commands do not come that far, as SIGPIPE ends them without a word; see [outlasts].
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

// failed is the first error of writing, which may have been nobody's business then.
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

// outlasts makes a command go on when nobody reads its output any more, as after
// `| head`, or when Ctrl-C has ended the tee behind it first: what it does matters more
// than what it prints.
func outlasts(cmd *cobra.Command) *cobra.Command {
	cmd.PreRun = func(*cobra.Command, []string) { keepWriting() }
	return cmd
}
