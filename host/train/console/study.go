package console

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/cage-qat/cage/internal/safetext"
)

// Progress describes a study in progress. Cells that share a run count once.
type Progress struct {
	Total, Done, Failed int
	Running             []Active
	// Left is the estimated time for the rest, at the pace so far; 0 as long as it is not
	// known.
	Left time.Duration
	// Ended is the cell whose end caused this report; nil if there is another reason.
	Ended *Ended
}

// Active is a cell that is being trained.
type Active struct {
	Label       string
	Step, Steps int
	Loss        float64   // of the newest record; meaningless if Step is 0
	Began       time.Time // zero: not known
}

// Ended describes how a cell's training ended.
type Ended struct {
	Label   string
	State   string   // one word
	Failed  bool     // whether it failed; Err says why
	ValLoss *float64 // nil if there is none
	Err     string
	Took    time.Duration // 0: not known
}

// Study displays the progress of one study. It is safe for concurrent use.
type Study struct {
	mu            sync.Mutex
	out           io.Writer
	width, height func() int // of the terminal; nil: there is none
	now           func() time.Time
	lines         int // drawn, above which the cursor stands
	last          Progress
}

// NewStudy returns a display that writes to out; it is live if out is a terminal.
func NewStudy(out io.Writer) *Study {
	d := &Study{out: out, now: time.Now}
	d.width, d.height = Size(out)
	return d
}

const (
	leastHeight = 4
)

// Watch shows a report of progress. host/study calls it.
func (d *Study) Watch(p Progress) {
	d.mu.Lock()
	defer d.mu.Unlock()
	p.Running = slices.Clone(p.Running)
	for i := range p.Running {
		p.Running[i].Label = safetext.Line(p.Running[i].Label)
	}
	d.last = p
	if d.width == nil {
		if p.Ended != nil {
			fmt.Fprintf(d.out, "%s%s%s\n", counter(p), gap, endLine(*p.Ended))
		}
		return
	}
	text := ""
	if p.Ended != nil && p.Ended.Failed {
		text = truncate(endLine(*p.Ended), d.width()-1) + eraseToEnd + "\n" // stays above what is drawn anew
	}
	d.draw(text)
}

// draw puts the lines in the place of those drawn before, below text that stays, in a
// single write.
func (d *Study) draw(stays string) {
	width, height := d.width()-1, max(leastHeight, d.height())
	lines := append([]string{headline(d.last)}, d.activeLines(height-2)...)
	var b strings.Builder
	b.WriteString(hideCursor)
	if d.lines > 0 { // to where the drawing began
		fmt.Fprintf(&b, linesUp+startOfLine, d.lines)
	}
	b.WriteString(stays)
	for _, line := range lines {
		b.WriteString(truncate(line, width) + eraseToEnd + "\n")
	}
	b.WriteString(eraseBelow + showCursor)
	fmt.Fprint(d.out, b.String())
	d.lines = len(lines)
}

// activeLines are the lines of the cells under way, at most as many as there is room for.
func (d *Study) activeLines(room int) []string {
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
			text += gap + "loss " + significant(a.Loss)
		}
		if !a.Began.IsZero() {
			text += gap + duration(d.now().Sub(a.Began))
		}
		lines = append(lines, text)
	}
	return lines
}

func stepOf(a Active) string {
	if a.Step == 0 {
		return "starting"
	}
	return fmt.Sprintf("step %d/%d", a.Step, a.Steps)
}

func headline(p Progress) string {
	filled := 0
	if p.Total > 0 {
		filled = barColumns * p.Done / p.Total
	}
	parts := []string{
		bar(filled, barColumns),
		fmt.Sprintf("%d of %d cells done", p.Done, p.Total),
	}
	if n := len(p.Running); n > 0 {
		parts = append(parts, fmt.Sprintf("%d running", n))
	}
	if p.Failed > 0 {
		parts = append(parts, fmt.Sprintf("%d failed", p.Failed))
	}
	if p.Left > 0 {
		parts = append(parts, duration(p.Left)+" left")
	}
	return strings.Join(parts, gap)
}

func counter(p Progress) string {
	total := fmt.Sprint(p.Total)
	text := fmt.Sprintf("[%*d/%s]", len(total), p.Done+p.Failed, total)
	if p.Left > 0 {
		text += gap + fmt.Sprintf("%6s left", duration(p.Left))
	}
	return text
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

// Close stops drawing and leaves the headline on the screen.
func (d *Study) Close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.width == nil || d.lines == 0 {
		return
	}
	d.last.Running = nil
	d.draw("")
	d.lines = 0
}
