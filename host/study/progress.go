package study

import (
	"time"

	"github.com/cage-qat/cage/host/train/config"
	"github.com/cage-qat/cage/host/train/console"
	"github.com/cage-qat/cage/host/train/metrics"
	"github.com/cage-qat/cage/host/train/rundir"
)

// interval is the time between two reports of progress.
const interval = 500 * time.Millisecond

// active is a running cell.
type active struct {
	cell   Cell
	dir    rundir.Dir
	began  time.Time
	from   int            // step at which it began
	record metrics.Record // the newest one
}

// watch reports progress at regular intervals until stop is called.
func (r *runner) watch() (stop func()) {
	if r.opts.Watch == nil {
		return func() {}
	}
	quit, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		ticker := time.NewTicker(interval)
		defer ticker.Stop()
		for {
			select {
			case <-quit:
				return
			case <-ticker.C:
				r.mu.Lock()
				r.show(console.Progress{})
				r.mu.Unlock()
			}
		}
	}()
	return func() { close(quit); <-done }
}

// show completes a report of progress and passes it to Watch. r.mu is held.
func (r *runner) show(p console.Progress) {
	if r.opts.Watch == nil {
		return
	}
	out := r.outcome()
	p.Total, p.Done, p.Failed = out.Cells, out.Done, out.Failed
	for _, a := range r.active {
		a.look()
		p.Running = append(p.Running, console.Active{
			Label: r.study.Label(a.cell), Step: a.record.Step, Steps: r.steps(a.cell),
			Loss: float64(a.record.Loss), Began: a.began,
		})
	}
	p.Left = r.left()
	r.opts.Watch(p)
}

// left estimates the time that the rest will take from the work done since the start.
func (r *runner) left() time.Duration {
	done, rest := r.worked, 0.0
	for _, c := range r.plan.Run {
		if state := r.states[c.ID]; state != Done && state != Failed {
			rest += work(c.Config, r.steps(c))
		}
	}
	for _, a := range r.active {
		done += work(a.cell.Config, a.record.Step-a.from)
		rest -= work(a.cell.Config, a.record.Step)
	}
	if done <= 0 {
		return 0
	}
	return time.Duration(float64(time.Since(r.began)) * rest / done)
}

// look reads the newest record of the cell.
func (a *active) look() {
	r, ok, err := metrics.Last(a.dir.Metrics())
	if err != nil || !ok { // the display keeps the record that it has
		return
	}
	a.record = r
}

// steps is how many steps the training of a cell has. That of conversations for some epochs counts them itself, and its
// run directory tells; until then it is taken to have as many as another cell, and 0 stands for not known. r.mu is held.
func (r *runner) steps(c Cell) int {
	if n := c.steps(); n > 0 || c.Quantize != nil || c.Config.Data.Kind != config.KindChat {
		return n
	}
	if r.counted[c.ID] == 0 {
		path := r.study.dir(c).Config()
		if text, err := path.ReadFile(); err == nil {
			if cfg, err := config.Parse(path.Name, text, nil); err == nil {
				r.counted[c.ID] = cfg.Train.Steps
			}
		}
	}
	if n := r.counted[c.ID]; n > 0 {
		return n
	}
	most := 0
	for _, n := range r.counted {
		most = max(most, n)
	}
	return most
}
