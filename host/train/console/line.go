package console

import (
	"fmt"
	"math"
	"time"

	"github.com/cage-qat/cage/host/train/metrics"
)

const window = 32

type state struct {
	total             int
	problem           bool
	last              metrics.Record
	valLoss, errorRel *metrics.Number  // the newest that were measured
	recent            []metrics.Record // of different steps, at most window, the oldest first
}

func (s *state) add(r metrics.Record) {
	s.last = r
	if r.ValLoss != nil {
		s.valLoss = r.ValLoss
	}
	if r.ErrorRel != nil {
		s.errorRel = r.ErrorRel
	}
	if n := len(s.recent); n == 0 || s.recent[n-1].Step != r.Step {
		s.recent = append(s.recent[max(0, n+1-window):], r)
	}
}

// line shows the most important values first, as it is cut where the terminal ends.
func (s *state) line() string {
	r := s.last
	text := fmt.Sprintf("step %d/%d", r.Step, s.total)
	add := func(format string, args ...any) { text += gap + fmt.Sprintf(format, args...) }
	first := s.recent[0]
	seconds, steps := float64(r.Seconds-first.Seconds), float64(r.Step-first.Step)
	paced := seconds > 0 && steps > 0
	if left := s.total - r.Step; paced && left > 0 {
		add("%s left", duration(time.Duration(seconds/steps*float64(left)*float64(time.Second))))
	}
	loss, crossEntropy := significant(float64(r.Loss)), float64(r.Loss)
	if r.CrossEntropy != nil {
		crossEntropy = float64(*r.CrossEntropy)
	}
	add("loss %s", loss)
	if !s.problem {
		add("ppl %s", significant(math.Exp(crossEntropy)))
	}
	switch {
	case s.valLoss != nil && s.problem:
		add("val loss %s", significant(float64(*s.valLoss)))
	case s.valLoss != nil:
		add("val ppl %s", significant(math.Exp(float64(*s.valLoss))))
	}
	if r.Lambda != nil {
		add("λ %s", significant(float64(*r.Lambda)))
	}
	if s.errorRel != nil { // its square root is ‖e‖/‖x‖ over all quantized weights
		add("‖e‖ %.2f%%", 100*math.Sqrt(float64(*s.errorRel)))
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

// barColumns is the width of the bars.
const barColumns = 24

// live is the line with a bar, cut to width columns.
func (s *state) live(width int) string {
	share := 1.0
	if s.total > 0 {
		share = min(1, float64(s.last.Step)/float64(s.total))
	}
	bar := bar(int(share*barColumns), barColumns)
	return truncate(fmt.Sprintf("%3d%% %s%s%s", int(share*100), bar, gap, s.line()), width)
}
