// Package overview shows a study to the person who watches it: on a terminal a few
// lines that are drawn anew, elsewhere a line for each cell that has ended.
//
// It shows what host/study reports and measures nothing.
package overview

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/cage-qat/cage/host/metrics/console"
	"github.com/cage-qat/cage/host/study"
	"github.com/cage-qat/cage/internal/safetext"
)

// Options configures a Display.
type Options struct {
	// Width and Height return the size of the terminal. Nil: there is none.
	Width, Height func() int
	// Now is the clock; nil means time.Now.
	Now func() time.Time
}

// Display shows the progress of one study. It is safe for use by several goroutines.
type Display struct {
	mu    sync.Mutex
	out   io.Writer
	opts  Options
	lines int // drawn, above which the cursor stands
	last  study.Progress
}

// New returns a display that writes to out: a live one when that is a terminal.
func New(out io.Writer) *Display {
	var o Options
	if f, ok := out.(*os.File); ok {
		o.Width, o.Height = console.Size(f)
	}
	return NewWith(out, o)
}

// NewWith returns a display with the given options.
func NewWith(out io.Writer, o Options) *Display {
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Display{out: out, opts: o}
}

const (
	eraseToEnd  = "\x1b[K"
	eraseBelow  = "\x1b[J"
	hideCursor  = "\x1b[?25l"
	showCursor  = "\x1b[?25h"
	linesUp     = "\x1b[%dA"
	gap         = "  "
	barColumns  = 24
	leastHeight = 4
)

// Watch shows a report: it is what study.RunOptions.Watch wants.
func (d *Display) Watch(p study.Progress) {
	d.mu.Lock()
	defer d.mu.Unlock()
	p.Running = slices.Clone(p.Running)
	for i := range p.Running {
		p.Running[i].Label = safetext.Line(p.Running[i].Label)
	}
	d.last = p
	if d.opts.Width == nil {
		if p.Ended != nil {
			fmt.Fprintf(d.out, "%s%s%s\n", counter(p), gap, ending(*p.Ended))
		}
		return
	}
	text := ""
	if p.Ended != nil && p.Ended.State == study.Failed {
		text = truncate(ending(*p.Ended), d.opts.Width()-1) + eraseToEnd + "\n" // stays above what is drawn anew
	}
	d.draw(text)
}

// draw puts the lines in the place of those drawn before, below text that stays, in a
// single write.
func (d *Display) draw(stays string) {
	width, height := d.opts.Width()-1, max(leastHeight, d.opts.Height())
	lines := append([]string{headline(d.last)}, d.running(height-2)...)
	var b strings.Builder
	b.WriteString(hideCursor + d.home() + stays)
	for _, line := range lines {
		b.WriteString(truncate(line, width) + eraseToEnd + "\n")
	}
	b.WriteString(eraseBelow + showCursor)
	fmt.Fprint(d.out, b.String())
	d.lines = len(lines)
}

// home moves the cursor to where the drawing began.
func (d *Display) home() string {
	if d.lines == 0 {
		return ""
	}
	return fmt.Sprintf(linesUp, d.lines) + "\r"
}

// running are the lines of the cells under way, at most as many as there is room for.
func (d *Display) running(room int) []string {
	label, steps := 0, 0
	for _, a := range d.last.Running {
		label, steps = max(label, utf8.RuneCountInString(a.Label)), max(steps, len(stepOf(a)))
	}
	var lines []string
	for i, a := range d.last.Running {
		if i == room-1 && len(d.last.Running) > room {
			return append(lines, fmt.Sprintf("  and %d more", len(d.last.Running)-i))
		}
		text := fmt.Sprintf("  %-*s%s%-*s", label, a.Label, gap, steps, stepOf(a))
		if a.Step > 0 {
			text += gap + "loss " + console.Significant(a.Loss)
		}
		lines = append(lines, text+gap+console.Duration(d.opts.Now().Sub(a.Began)))
	}
	return lines
}

func stepOf(a study.Active) string {
	if a.Step == 0 {
		return "starting"
	}
	return fmt.Sprintf("step %d/%d", a.Step, a.Steps)
}

// headline sums the study up.
func headline(p study.Progress) string {
	filled := 0
	if p.Total > 0 {
		filled = barColumns * p.Done / p.Total
	}
	parts := []string{
		strings.Repeat("━", filled) + strings.Repeat("─", barColumns-filled),
		fmt.Sprintf("%d of %d cells done", p.Done, p.Total),
	}
	if n := len(p.Running); n > 0 {
		parts = append(parts, fmt.Sprintf("%d running", n))
	}
	if p.Failed > 0 {
		parts = append(parts, fmt.Sprintf("%d failed", p.Failed))
	}
	if p.Left > 0 {
		parts = append(parts, console.Duration(p.Left)+" left")
	}
	return strings.Join(parts, gap)
}

// counter is the number of cells done and failed, of all.
func counter(p study.Progress) string {
	total := fmt.Sprint(p.Total)
	text := fmt.Sprintf("[%*d/%s]", len(total), p.Done+p.Failed, total)
	if p.Left > 0 {
		text += gap + fmt.Sprintf("%6s left", console.Duration(p.Left))
	}
	return text
}

// ending says how a cell has ended, on one line.
func ending(e study.Ended) string {
	text := safetext.Line(e.Label) + ": " + string(e.State)
	if loss, ok := e.Summary["val_loss"]; ok {
		text += ", val loss " + console.Significant(loss)
	}
	if e.Err != "" {
		text += ": " + safetext.Line(strings.ReplaceAll(e.Err, "\n", "; "))
	}
	return text + " (" + console.Duration(e.Took) + ")"
}

// Close ends the drawing, of which the headline stays.
func (d *Display) Close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.opts.Width == nil || d.lines == 0 {
		return
	}
	d.last.Running = nil
	d.draw("")
	d.lines = 0
}

// truncate cuts text to width columns.
func truncate(text string, width int) string {
	runes := []rune(text)
	if len(runes) <= width {
		return text
	}
	return string(runes[:max(0, width)])
}
