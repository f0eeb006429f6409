package console

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/cage-qat/cage/internal/safetext"
)

// Progress is the progress of a study. Cells that share a run count as one.
type Progress struct {
	Total, Done, Failed, Running int
	// Left is the remaining time, estimated from the average speed so far; 0 if unknown.
	Left time.Duration
	// Ended is the cell that has just ended, or nil if this report has another cause.
	Ended *Ended
}

// Ended describes how a cell ended.
type Ended struct {
	Label   string
	State   string   // one word
	Failed  bool     // whether it failed, with the error Err
	ValLoss *float64 // nil if there is none
	Err     string
	Took    time.Duration // 0: not known
}

// Study displays the progress of a study: on a terminal as a live line, with a line above it for
// each failed cell; elsewhere as a line for each cell that has ended. It is safe for concurrent
// use.
type Study struct {
	mu    sync.Mutex
	out   io.Writer
	width func() int // of the terminal; nil: there is none
	drawn bool       // whether the live line is on the screen
}

// NewStudy returns a display that writes to out.
func NewStudy(out io.Writer) *Study { return &Study{out: out, width: Width(out)} }

// Watch displays p. Package host/study calls it.
func (d *Study) Watch(p Progress) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.width == nil {
		if p.Ended != nil {
			total := fmt.Sprint(p.Total)
			text := fmt.Sprintf("[%*d/%s]", len(total), p.Done+p.Failed, total)
			if p.Left > 0 {
				text += gap + fmt.Sprintf("%6s left", duration(p.Left))
			}
			fmt.Fprintf(d.out, "%s%s%s\n", text, gap, endLine(*p.Ended))
		}
		return
	}
	text, width := startOfLine, d.width()-1
	if p.Ended != nil && p.Ended.Failed {
		text += truncate(endLine(*p.Ended), width) + eraseToEnd + "\n"
	}
	line := bar(barColumns*p.Done/max(1, p.Total), barColumns) + gap +
		fmt.Sprintf("%d of %d cells done", p.Done, p.Total)
	if p.Running > 0 {
		line += gap + fmt.Sprintf("%d running", p.Running)
	}
	if p.Failed > 0 {
		line += gap + fmt.Sprintf("%d failed", p.Failed)
	}
	if p.Left > 0 {
		line += gap + duration(p.Left) + " left"
	}
	fmt.Fprint(d.out, text+truncate(line, width)+eraseToEnd)
	d.drawn = true
}

// Close ends the live line.
func (d *Study) Close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.drawn {
		fmt.Fprintln(d.out)
		d.drawn = false
	}
}

func endLine(e Ended) string {
	text := safetext.Line(e.Label) + ": " + e.State
	if e.ValLoss != nil {
		text += ", val loss " + significant(*e.ValLoss)
	}
	if e.Err != "" {
		text += ": " + safetext.Line(strings.ReplaceAll(e.Err, "\n", "; "))
	}
	if e.Took > 0 {
		text += " (" + duration(e.Took) + ")"
	}
	return text
}
