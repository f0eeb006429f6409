package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/spf13/cobra"

	"github.com/cage-qat/cage/host/train/console"
	"github.com/cage-qat/cage/internal/safetext"
)

// answer is the result of a command as it is printed: value with --json, else text. Errors of
// writing are noticed by [outlet], and need no handling here.
type answer struct {
	value any
	text  func(w io.Writer)
}

func tableAnswer(value any, rows [][]string) *answer {
	return &answer{value, func(w io.Writer) { table(w, rows) }}
}

func textAnswer(value any, format string, args ...any) *answer {
	return &answer{value, func(w io.Writer) { fmt.Fprintf(w, format, args...) }}
}

// exactAnswer is a text for another program. A file or a pipe gets it byte for byte; a terminal, escaped like all else.
func exactAnswer(value any, text string) *answer {
	return &answer{value, func(w io.Writer) {
		if o, ok := w.(*outlet); ok {
			if width, _ := console.Size(o.file); width == nil {
				_, _ = o.write(o.file, []byte(text))
				return
			}
		}
		_, _ = io.WriteString(w, text)
	}}
}

// withAnswer gives a command the flag --json, and makes it print what run returns. An answer
// that comes with an error is printed, too.
func withAnswer(cmd *cobra.Command, run func(cmd *cobra.Command, args []string) (*answer, error)) *cobra.Command {
	cmd.Flags().Bool("json", false, "print the result as JSON")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		a, err := run(cmd, args)
		switch {
		case a == nil:
		case wantsJSON(cmd):
			text, jsonErr := json.MarshalIndent(a.value, "", "  ")
			if jsonErr == nil {
				_, jsonErr = fmt.Fprintln(cmd.OutOrStdout(), safetext.JSON(string(text)))
			}
			err = errors.Join(jsonErr, err)
		default:
			a.text(cmd.OutOrStdout())
		}
		return err
	}
	return cmd
}

func wantsJSON(cmd *cobra.Command) bool {
	asJSON, _ := cmd.Flags().GetBool("json")
	return asJSON
}

// table writes rows in aligned columns; the first is the heading.
func table(w io.Writer, rows [][]string) {
	rows = escapedRows(rows)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		fmt.Fprintln(t, strings.TrimRight(strings.Join(row, "\t"), "\t"))
	}
	t.Flush()
}

// escapedRows escapes what would break a row of a table into several lines.
func escapedRows(rows [][]string) [][]string {
	out := make([][]string, len(rows))
	for i, row := range rows {
		for _, cell := range row {
			out[i] = append(out[i], safetext.Line(cell))
		}
	}
	return out
}

func throttle(interval time.Duration) (due func() bool) {
	next := time.Now().Add(interval)
	return func() bool {
		if time.Now().Before(next) {
			return false
		}
		next = time.Now().Add(interval)
		return true
	}
}

// newLogger makes the logger of a command, which writes to out. Messages may quote
// foreign text, which is escaped.
func newLogger(cmd *cobra.Command, out io.Writer) (hclog.Logger, error) {
	name, err := cmd.Flags().GetString("log-level")
	if err != nil {
		return nil, err
	}
	level := hclog.LevelFromString(name)
	if level == hclog.NoLevel {
		return nil, usageError{fmt.Errorf("--log-level %q: use trace, debug, info, warn, error or off", name)}
	}
	return hclog.New(&hclog.LoggerOptions{Name: "cage", Level: level, Output: safetext.NewWriter(out), TimeFormat: "15:04:05"}), nil
}

// outlet is the standard output or error of this process. All text goes through it,
// escaped as package safetext says; only progress displays and texts for other programs are not.
//
// Writing to a reader that is gone is no failure: it has seen what it wanted. This concerns
// commands that outlast their readers (see [surviveSIGPIPE]); SIGPIPE silently ends the others.
type outlet struct {
	file *os.File
	mu   sync.Mutex
	err  error // of the first write that failed
}

// Write implements io.Writer.
func (o *outlet) Write(p []byte) (int, error) { return o.write(safetext.NewWriter(o.file), p) }

func (o *outlet) write(to io.Writer, p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	n, err := to.Write(p)
	if errors.Is(err, syscall.EPIPE) {
		return len(p), nil
	}
	if o.err == nil {
		o.err = err
	}
	return n, err
}

// firstError is the first error of writing. Most callers do not look at the errors of their
// writes, so that it is reported when the command has ended.
func (o *outlet) firstError() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.err
}

// unescaped returns the file of an outlet, for displays that move the cursor; any other writer stays as it is.
func unescaped(w io.Writer) io.Writer {
	if o, ok := w.(*outlet); ok {
		return o.file
	}
	return w
}

// surviveSIGPIPE makes a command go on when nobody reads its output any more, as after `| head`,
// or when Ctrl-C has ended a tee behind it. It is for commands whose work matters more than
// what they print. SIGPIPE is caught, so that writing to a closed pipe is an error; were it
// ignored, children such as plugins would ignore it, too.
func surviveSIGPIPE(cmd *cobra.Command) *cobra.Command {
	cmd.PreRun = func(*cobra.Command, []string) { signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) }
	return cmd
}
