package console

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/cage-qat/cage/host/metrics"
)

// state is what a line shows: the last record, completed by the last values of
// what is not measured at every step.
type state struct {
	total, step  int
	problem      bool
	loss, lambda float64
	lr           float64
	valLoss      *metrics.Number
	errorRel     *metrics.Number
	skipped      int
	throughput   float64 // tokens per second, 0 while not known
	left         time.Duration
	leftKnown    bool
}

func (s *state) add(r metrics.Record, p pace) {
	s.step, s.loss, s.lambda, s.lr, s.skipped = r.Step, float64(r.Loss), float64(r.Lambda), float64(r.LR), r.Skipped
	if r.ValLoss != nil {
		s.valLoss = r.ValLoss
	}
	if r.ErrorRel != nil {
		s.errorRel = r.ErrorRel
	}
	if r.TokensPerSecond != nil {
		s.throughput = float64(*r.TokensPerSecond)
	} else if rate, ok := p.tokensPerSecond(); ok {
		s.throughput = rate
	}
	s.left, s.leftKnown = p.left(max(0, s.total-s.step))
}

// segment is a part of a line. In a narrow terminal the one with the highest rank
// goes first.
type segment struct {
	text string
	rank int
}

// segments lists the parts of a line from left to right.
func (s *state) segments() []segment {
	out := append([]segment{{fmt.Sprintf("step %d/%d", s.step, s.total), 0}}, s.losses()...)
	if s.valLoss != nil {
		out = append(out, s.validation())
	}
	out = append(out, segment{"λ " + Significant(s.lambda), 5})
	if s.errorRel != nil {
		// ‖e‖/‖x‖ over all quantized weights.
		out = append(out, segment{fmt.Sprintf("‖e‖ %.2f%%", 100*math.Sqrt(float64(*s.errorRel))), 7})
	}
	if s.throughput > 0 {
		out = append(out, segment{count(s.throughput) + " tok/s", 4})
	}
	if s.skipped > 0 {
		out = append(out, segment{fmt.Sprintf("%d skipped", s.skipped), 8})
	}
	if s.leftKnown && s.step < s.total {
		out = append(out, segment{Duration(s.left) + " left", 2})
	}
	return out
}

// losses shows the training loss, and the perplexity where it is that of tokens.
func (s *state) losses() []segment {
	if s.problem {
		return []segment{{"loss " + Significant(s.loss), 1}}
	}
	return []segment{{fmt.Sprintf("loss %.3f", s.loss), 1}, {"ppl " + Significant(math.Exp(s.loss)), 3}}
}

// validation shows the last evaluation.
func (s *state) validation() segment {
	loss := float64(*s.valLoss)
	if s.problem {
		return segment{"val loss " + Significant(loss), 6}
	}
	return segment{"val ppl " + Significant(math.Exp(loss)), 6}
}

// plain is the line for a log: everything, with the learning rate.
func (s *state) plain() string {
	var parts []string
	for _, seg := range s.segments() {
		parts = append(parts, seg.text)
	}
	rate := fmt.Sprintf("lr %.2e", s.lr)
	return strings.Join(slices.Insert(parts, 1+len(s.losses()), rate), gap)
}

const (
	gap        = "  "
	narrowBar  = 8
	widestBar  = 32
	percentage = 5 // columns of " 42% ", beside the bar
)

// live is the line for a terminal, at most width columns long. The bar takes what
// the segments leave; segments give way until a narrow bar fits, then the bar does.
func (s *state) live(width int) string {
	segments := s.segments()
	for len(segments) > 1 && columns(segments)+len(gap)+narrowBar+percentage > width {
		least := slices.MaxFunc(segments, func(a, b segment) int { return cmp.Compare(a.rank, b.rank) })
		if least.rank <= 2 {
			break // step, loss and time left matter more than the bar
		}
		segments = slices.DeleteFunc(segments, func(seg segment) bool { return seg.rank == least.rank })
	}
	text := ""
	if room := width - columns(segments) - len(gap) - percentage; room >= narrowBar {
		text = s.bar(min(room, widestBar)) + gap
	}
	for i, seg := range segments {
		if i > 0 {
			text += gap
		}
		text += seg.text
	}
	return truncate(text, width)
}

// bar draws the share of steps done in the given number of columns, with the
// percentage in front of it.
func (s *state) bar(width int) string {
	share := 1.0
	if s.total > 0 {
		share = min(1, max(0, float64(s.step)/float64(s.total)))
	}
	done := int(share * float64(width))
	return fmt.Sprintf("%3d%% %s%s", int(share*100), strings.Repeat("━", done), strings.Repeat("─", width-done))
}

// columns is the width of segments with gaps between them. Every character used
// here takes one column.
func columns(segments []segment) int {
	n := len(gap) * (len(segments) - 1)
	for _, seg := range segments {
		n += utf8.RuneCountInString(seg.text)
	}
	return n
}

// truncate cuts text to width columns.
func truncate(text string, width int) string {
	runes := []rune(text)
	if len(runes) <= width {
		return text
	}
	return string(runes[:max(0, width)])
}

// Significant writes a number so that its width changes little: four digits, or
// an exponent for what is very large or very small.
func Significant(x float64) string {
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

// count writes a large number with a unit: 950, 12.3k, 1.25M.
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

// Duration writes a time with the two units that matter: 45s, 2m10s, 3h05m, 2d04h.
func Duration(d time.Duration) string {
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
