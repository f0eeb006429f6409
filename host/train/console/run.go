package console

import (
	"bytes"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/cage-qat/cage/host/train/metrics"
)

// RunOptions configures a [Run].
type RunOptions struct {
	Total int // optimizer steps of the run
	Every int // for plain lines only: the number of steps between lines; 0 or 1 shows each record

	// Problem is set for a problem without data, for which no perplexity is displayed.
	Problem bool

	// Width returns the number of columns of the terminal. It is called before each redraw, in case
	// the window was resized. If it is nil, plain lines are printed.
	Width func() int
	// Now is the clock; nil means time.Now.
	Now func() time.Time
}

// redrawInterval is the minimum time between redraws of the live line.
const redrawInterval = 100 * time.Millisecond

// Run displays the progress of a run. It is safe for concurrent use by a logger and the training
// loop. Errors of writing are ignored, so that a run does not end with its terminal.
type Run struct {
	mu     sync.Mutex
	out    io.Writer
	opts   RunOptions
	drawn  time.Time // when the live line was last drawn; zero: it is not on the screen
	stale  bool      // whether a record has not been shown yet
	shown  int       // plain lines: the last step shown
	log    []byte    // an incomplete log line
	closed bool

	last              metrics.Record
	valLoss, errorRel *metrics.Number  // the newest measured values
	recent            []metrics.Record // of distinct steps, at most window, oldest first
}

// NewRun returns a display that writes to out.
func NewRun(out io.Writer, opts RunOptions) *Run {
	if opts.Now == nil {
		opts.Now = time.Now
	}
	return &Run{out: out, opts: opts}
}

// SetTotal sets the number of optimizer steps if it was not known when d was created.
func (d *Run) SetTotal(steps int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.opts.Total = steps
}

// Update adds a record and displays it if an update is due. If a value is not measured at every
// step, the last one is displayed. Evaluations are printed on lines of their own.
func (d *Run) Update(r metrics.Record) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return
	}
	now := d.opts.Now()
	d.last = r
	if r.ValLoss != nil {
		d.valLoss = r.ValLoss
	}
	if r.ErrorRel != nil {
		d.errorRel = r.ErrorRel
	}
	if n := len(d.recent); n == 0 || d.recent[n-1].Step != r.Step {
		d.recent = append(d.recent[max(0, n+1-window):], r)
	}
	d.stale = true
	if d.opts.Width == nil {
		// Print the first and last record, each that completes an interval, and each evaluation.
		every := max(1, d.opts.Every)
		if d.shown == 0 || r.Step >= d.opts.Total || r.Step/every > d.shown/every || r.ValLoss != nil {
			d.plainLine()
		}
		return
	}
	switch {
	case r.ValLoss != nil:
		d.draw(truncate(d.line(), d.opts.Width()-1)+"\n", now)
	case d.drawn.IsZero() || now.Sub(d.drawn) >= redrawInterval:
		d.draw("", now)
	}
}

func (d *Run) plainLine() {
	d.out.Write([]byte(d.line() + "\n"))
	d.shown, d.stale = d.last.Step, false
}

// Write prints log lines, above the live line if there is one. It makes a Run usable as the output
// of a logger. An incomplete line is buffered.
func (d *Run) Write(p []byte) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.log = append(d.log, p...)
	end := bytes.LastIndexByte(d.log, '\n') + 1
	if end == 0 {
		return len(p), nil
	}
	lines := d.log[:end]
	if d.drawn.IsZero() || d.closed {
		d.out.Write(lines)
	} else {
		d.draw(string(lines), d.opts.Now())
	}
	d.log = append([]byte(nil), d.log[end:]...)
	return len(p), nil
}

// draw prints log lines and redraws the live line below them, in a single write to avoid flicker.
func (d *Run) draw(log string, now time.Time) {
	text := startOfLine
	if log != "" {
		text += eraseToEnd + log
	}
	// The last column is not used, because some terminals would wrap the line.
	share := 1.0
	if total := d.opts.Total; total > 0 {
		share = min(1, float64(d.last.Step)/float64(total))
	}
	line := fmt.Sprintf("%3d%% ", int(share*100)) + bar(int(share*barColumns), barColumns) +
		gap + d.line()
	text += truncate(line, d.opts.Width()-1) + eraseToEnd
	d.out.Write([]byte(text))
	d.drawn, d.stale = now, false
}

// Close displays the newest record and ends the live line. Log lines can still be written
// afterwards.
func (d *Run) Close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return
	}
	live := d.opts.Width != nil
	switch {
	case live && d.stale:
		d.draw("", d.opts.Now())
	case d.stale:
		d.plainLine()
	}
	if !d.drawn.IsZero() {
		d.out.Write([]byte("\n"))
	}
	if len(d.log) > 0 {
		d.out.Write(append(d.log, '\n'))
		d.log = nil
	}
	d.closed = true
}
