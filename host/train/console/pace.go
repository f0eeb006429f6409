package console

import (
	"time"

	"github.com/cage-qat/cage/host/train/metrics"
)

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
