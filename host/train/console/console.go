// Package console displays runs and studies for the person who watches them. A [Run] is
// one live line with a bar on a terminal, or plain lines at intervals elsewhere; a
// [Study] is a few lines that are redrawn, or a line for each cell that has finished.
//
// It displays what it is given (records, progress), and passes log lines through so that
// they appear above the live line. It measures nothing but the rate at which records
// arrive.
package console

import (
	"io"
	"os"

	"golang.org/x/term"
)

// Size returns functions that return the columns and lines of out if it is a terminal
// that can be redrawn; nil if it is not.
func Size(out io.Writer) (width, height func() int) {
	f, ok := out.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) || os.Getenv("TERM") == "dumb" {
		return nil, nil
	}
	size := func() (int, int) {
		width, height, err := term.GetSize(int(f.Fd()))
		if err != nil {
			return 80, 24
		}
		return width, height
	}
	return func() int { w, _ := size(); return w }, func() int { _, h := size(); return h }
}

// What the displays write between texts.
const (
	startOfLine = "\r"
	eraseToEnd  = "\x1b[K"
	eraseBelow  = "\x1b[J"
	hideCursor  = "\x1b[?25l"
	showCursor  = "\x1b[?25h"
	linesUp     = "\x1b[%dA"
	gap         = "  "
)
