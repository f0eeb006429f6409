package console

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/cage-qat/cage/host/train/metrics"
)

// state is what a line shows: the last record, completed by the last values of
// what is not measured at every step.
type state struct {
	total, step  int
	problem      bool
	loss         float64
	lambda       *metrics.Number // of CAGE
	crossEntropy *metrics.Number // with a teacher
	lr           float64
	valLoss      *metrics.Number
	errorRel     *metrics.Number
	skipped      int
	throughput   float64 // tokens per second, 0 while not known
	left         time.Duration
	leftKnown    bool
}

func (s *state) add(r metrics.Record, p pace) {
	s.step, s.loss, s.lambda, s.lr, s.skipped = r.Step, float64(r.Loss), r.Lambda, float64(r.LR), r.Skipped
	s.crossEntropy = r.CrossEntropy
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

// The ranks of what the bar and the lines of evaluations treat alone.
const (
	rankLeft  = 2 // the time that is left
	rankSpeed = 4
	rankVal   = 6
)

// segments lists the parts of a line from left to right.
func (s *state) segments() []segment {
	out := append([]segment{{fmt.Sprintf("step %d/%d", s.step, s.total), 0}}, s.losses()...)
	if s.valLoss != nil {
		out = append(out, s.validation())
	}
	if s.lambda != nil {
		out = append(out, segment{"λ " + significant(float64(*s.lambda)), 5})
	}
	if s.errorRel != nil {
		// ‖e‖/‖x‖ over all quantized weights.
		out = append(out, segment{fmt.Sprintf("‖e‖ %.2f%%", 100*math.Sqrt(float64(*s.errorRel))), 7})
	}
	if s.throughput > 0 {
		out = append(out, segment{count(s.throughput) + " tok/s", rankSpeed})
	}
	if s.skipped > 0 {
		out = append(out, segment{fmt.Sprintf("%d skipped", s.skipped), 8})
	}
	if s.leftKnown && s.step < s.total {
		out = append(out, segment{duration(s.left) + " left", rankLeft})
	}
	return out
}

// losses shows the training loss, and for a language model the perplexity. With a teacher these say different things.
func (s *state) losses() []segment {
	if s.problem {
		return []segment{{"loss " + significant(s.loss), 1}}
	}
	if s.crossEntropy != nil {
		return []segment{{"loss " + significant(s.loss), 1}, {"ppl " + significant(math.Exp(float64(*s.crossEntropy))), 3}}
	}
	return []segment{{fmt.Sprintf("loss %.3f", s.loss), 1}, {"ppl " + significant(math.Exp(s.loss)), 3}}
}

// validation shows the last evaluation.
func (s *state) validation() segment {
	loss := float64(*s.valLoss)
	if s.problem {
		return segment{"val loss " + significant(loss), rankVal}
	}
	return segment{"val ppl " + significant(math.Exp(loss)), rankVal}
}

// evaluation is the line that an evaluation leaves on a terminal, at most width columns
// long: what was reached by this step, without what is of the moment. What matters less
// than the validation loss gives way in a narrow terminal.
func (s *state) evaluation(width int) string {
	segments := slices.DeleteFunc(s.segments(), func(seg segment) bool { return seg.rank == rankSpeed || seg.rank == rankLeft })
	order := func(seg segment) int {
		if seg.rank == rankVal {
			return 0 // beside the step
		}
		return seg.rank
	}
	for len(segments) > 2 && columns(segments) > width {
		least := order(slices.MaxFunc(segments, func(a, b segment) int { return cmp.Compare(order(a), order(b)) }))
		segments = slices.DeleteFunc(segments, func(seg segment) bool { return order(seg) == least })
	}
	return truncate(join(segments), width)
}

const (
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
		if least.rank <= rankLeft {
			break // step, loss and time left matter more than the bar
		}
		segments = slices.DeleteFunc(segments, func(seg segment) bool { return seg.rank == least.rank })
	}
	text := ""
	if room := width - columns(segments) - len(gap) - percentage; room >= narrowBar {
		text = s.bar(min(room, widestBar)) + gap
	}
	return truncate(text+join(segments), width)
}

// bar draws the share of steps done in the given number of columns, with the
// percentage in front of it.
func (s *state) bar(width int) string {
	share := 1.0
	if s.total > 0 {
		share = min(1, max(0, float64(s.step)/float64(s.total)))
	}
	return fmt.Sprintf("%3d%% %s", int(share*100), bar(int(share*float64(width)), width))
}

// join writes segments with gaps between them.
func join(segments []segment) string {
	parts := make([]string, len(segments))
	for i, seg := range segments {
		parts[i] = seg.text
	}
	return strings.Join(parts, gap)
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

// window is the number of records over which the pace is measured: long enough to
// smooth, short enough to follow a machine that slows down.
const window = 32

// moment is the arrival of a record.
type moment struct {
	at     time.Time
	step   int
	tokens int64
}

// pace measures how fast a run advances. The time before the first record, in
// which the step is compiled, does not count.
type pace struct {
	moments []moment // at most window, oldest first
}

// add takes note of a record. A second record of a step is that of an evaluation,
// whose time is not part of the pace.
func (p *pace) add(now time.Time, r metrics.Record) {
	if n := len(p.moments); n > 0 && p.moments[n-1].step == r.Step {
		pause := now.Sub(p.moments[n-1].at)
		for i := range p.moments {
			p.moments[i].at = p.moments[i].at.Add(pause)
		}
		return
	}
	if len(p.moments) == window {
		p.moments = append(p.moments[:0], p.moments[1:]...)
	}
	p.moments = append(p.moments, moment{now, r.Step, r.Tokens})
}

// span returns the time, steps and tokens between the oldest and the newest record.
func (p *pace) span() (elapsed time.Duration, steps int, tokens int64) {
	if len(p.moments) == 0 {
		return 0, 0, 0
	}
	first, last := p.moments[0], p.moments[len(p.moments)-1]
	return last.at.Sub(first.at), last.step - first.step, last.tokens - first.tokens
}

// left estimates the time that the given number of steps will take.
func (p *pace) left(steps int) (d time.Duration, ok bool) {
	elapsed, done, _ := p.span()
	if done <= 0 || elapsed <= 0 {
		return 0, false
	}
	return time.Duration(float64(elapsed) / float64(done) * float64(steps)), true
}

// tokensPerSecond returns the throughput, false while it is not known.
func (p *pace) tokensPerSecond() (rate float64, ok bool) {
	elapsed, _, tokens := p.span()
	if tokens <= 0 || elapsed <= 0 {
		return 0, false
	}
	return float64(tokens) / elapsed.Seconds(), true
}
