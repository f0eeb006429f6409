package train

import (
	"io"

	"github.com/cage-qat/cage/host/train/config"
	"github.com/cage-qat/cage/host/train/console"
	"github.com/cage-qat/cage/host/train/metrics"
)

// display shows progress and remembers what the records of a run have in common.
type display struct {
	console  *console.Run
	latest   metrics.Record // of the newest step
	previous metrics.Record // of the step before the pace was last measured
}

// NewConsole makes the progress display of a run: a live line if out is a terminal,
// otherwise one line per logged record. It can be passed as Options.Console, and log
// messages can be written through it.
func NewConsole(out io.Writer, cfg *config.Config) *console.Run {
	opts := console.RunOptions{Total: cfg.Train.Steps, Every: max(1, cfg.Train.LogEvery), Problem: !cfg.Model.Language()}
	opts.Width, _ = console.Size(out)
	return console.NewRun(out, opts)
}

// newDisplay shows progress on out, which may be a display already.
func newDisplay(out io.Writer, cfg *config.Config) display {
	if c, ok := out.(*console.Run); ok {
		c.SetTotal(cfg.Train.Steps) // which may have followed from the data
		return display{console: c}
	}
	return display{console: NewConsole(out, cfg)}
}

// step shows a record and keeps it as the newest.
func (d *display) step(r metrics.Record) {
	if r.ErrorNorm2 == nil {
		r.ErrorNorm2, r.ErrorRel = d.latest.ErrorNorm2, d.latest.ErrorRel
	}
	d.latest = r
	d.console.Update(r)
}

// speed is the number of tokens and of steps per second since the last call, without what was
// not training.
func (d *display) speed(r metrics.Record) (tokens, steps float64) {
	before, seconds := d.previous, float64(r.Seconds-d.previous.Seconds)
	d.previous = r
	if seconds <= 0 {
		return 0, 0
	}
	return float64(r.Tokens-before.Tokens) / seconds, float64(r.Step-before.Step) / seconds
}
