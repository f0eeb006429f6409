// Package console displays the progress of runs and studies. On a terminal, [Run] and [Study] each
// redraw a live line with a progress bar, and print log lines or failed cells above it. Elsewhere,
// Run prints a line at intervals, and Study prints one for each cell that has ended.
//
// The displayed values are passed in as records or as [Progress]; the package itself only computes
// the rate of the records.
package console

import (
	"fmt"
	"io"
	"math"
	"os"
	"strings"
	"time"

	"golang.org/x/term"
)

const window = 32

// line formats the newest record. The most important values come first, because the line is
// truncated to the width of the terminal.
func (d *Run) line() string {
	r := d.last
	text := fmt.Sprintf("step %d/%d", r.Step, d.opts.Total)
	add := func(format string, args ...any) { text += gap + fmt.Sprintf(format, args...) }
	first := d.recent[0]
	seconds, steps := float64(r.Seconds-first.Seconds), float64(r.Step-first.Step)
	paced := seconds > 0 && steps > 0
	if left := d.opts.Total - r.Step; paced && left > 0 {
		add("%s left", duration(time.Duration(seconds/steps*float64(left)*float64(time.Second))))
	}
	loss, crossEntropy := significant(float64(r.Loss)), float64(r.Loss)
	if r.CrossEntropy != nil {
		crossEntropy = float64(*r.CrossEntropy)
	}
	add("loss %s", loss)
	if !d.opts.Problem {
		add("ppl %s", significant(math.Exp(crossEntropy)))
	}
	switch {
	case d.valLoss != nil && d.opts.Problem:
		add("val loss %s", significant(float64(*d.valLoss)))
	case d.valLoss != nil:
		add("val ppl %s", significant(math.Exp(float64(*d.valLoss))))
	}
	if r.Lambda != nil {
		add("λ %s", significant(float64(*r.Lambda)))
	}
	if d.errorRel != nil { // its square root is ‖e‖/‖x‖ over all quantized weights
		add("‖e‖ %.2f%%", 100*math.Sqrt(float64(*d.errorRel)))
	}
	switch tokens := float64(r.Tokens - first.Tokens); {
	case r.TokensPerSecond != nil:
		add("%s tok/s", count(float64(*r.TokensPerSecond)))
	case paced && tokens > 0:
		add("%s tok/s", count(tokens/seconds))
	}
	if r.Skipped > 0 {
		add("%d skipped", r.Skipped)
	}
	add("lr %.2e", float64(r.LR))
	return text
}

// barColumns is the width of progress bars.
const barColumns = 24

// Width returns a function that returns the number of columns of the terminal out, or nil if out is
// not a terminal on which lines can be redrawn.
func Width(out io.Writer) func() int {
	f, ok := out.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) || os.Getenv("TERM") == "dumb" {
		return nil
	}
	return func() int {
		width, _, err := term.GetSize(int(f.Fd()))
		if err != nil || width <= 0 { // unknown, as under script(1) or in a container
			return 80
		}
		return width
	}
}

// Control sequences and separators of the displays.
const (
	startOfLine = "\r"
	eraseToEnd  = "\x1b[K"
	gap         = "  "
)

func bar(done, columns int) string {
	return strings.Repeat("━", done) + strings.Repeat("─", columns-done)
}

func truncate(text string, width int) string {
	runes := []rune(text)
	if len(runes) <= width {
		return text
	}
	return string(runes[:max(0, width)])
}

// significant formats a number with four digits, or in scientific notation.
func significant(x float64) string {
	switch abs := math.Abs(x); {
	case x == 0:
		return "0"
	case math.IsNaN(x) || math.IsInf(x, 0):
		return fmt.Sprint(x)
	case abs >= 1e5 || abs < 1e-3:
		return fmt.Sprintf("%.2e", x)
	case abs >= 1000:
		return fmt.Sprintf("%.0f", x)
	case abs >= 100:
		return fmt.Sprintf("%.1f", x)
	case abs >= 10:
		return fmt.Sprintf("%.2f", x)
	}
	return fmt.Sprintf("%.3f", x)
}

// count formats a large number with a unit: 950, 12.3k, 1.25M.
func count(x float64) string {
	switch {
	case x >= 999_500:
		return fmt.Sprintf("%.2fM", x/1e6)
	case x >= 9_995:
		return fmt.Sprintf("%.1fk", x/1e3)
	case x >= 999.5:
		return fmt.Sprintf("%.2fk", x/1e3)
	}
	return fmt.Sprintf("%.0f", x)
}

// duration formats a duration with its two largest units: 45s, 2m10s, 3h05m, 2d04h.
func duration(d time.Duration) string {
	s := int64(d.Round(time.Second) / time.Second)
	switch {
	case s < 60:
		return fmt.Sprintf("%ds", s)
	case s < 3600:
		return fmt.Sprintf("%dm%02ds", s/60, s%60)
	case s < 86400:
		return fmt.Sprintf("%dh%02dm", s/3600, s/60%60)
	}
	return fmt.Sprintf("%dd%02dh", s/86400, s/3600%24)
}
