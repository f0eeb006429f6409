package study

import (
	"time"

	"github.com/cage-qat/cage/host/study/lease"
	"github.com/cage-qat/cage/host/train/console"
)

// Follower reports the progress of a study that other processes train, wherever they are. Its zero value is of no use: see [Study.Follow].
type Follower struct {
	study   *Study
	watch   func(console.Progress)
	states  map[string]State // by ID
	holders map[string]lease.Holder
}

// Follow makes a follower of a study. What has ended before the first look is not reported.
func (s *Study) Follow(watch func(console.Progress)) *Follower {
	return &Follower{study: s, watch: watch, holders: map[string]lease.Holder{}}
}

// Look reads how far the study is, and reports what has ended since the last look, and what runs. note is what else is to be said of it.
func (f *Follower) Look(note string) (Outcome, error) {
	results, err := f.study.Results()
	if err != nil {
		return Outcome{}, err
	}
	results = f.study.Wanted(results)
	states := statesOf(results)
	out := count(states)
	p := console.Progress{Total: out.Cells, Done: out.Done, Failed: out.Failed, Note: note}
	var ended []*console.Ended
	running := map[string]lease.Holder{}
	for _, r := range results {
		c := r.Cell
		was, seen := f.states[c.ID]
		switch _, listed := running[c.ID]; {
		case r.State == Running && !listed:
			running[c.ID] = r.Holder
			p.Running = append(p.Running, f.active(r))
		case (r.State == Done || r.State == Failed) && f.states != nil && (was != r.State || !seen):
			ended = append(ended, f.ended(r))
			f.states[c.ID] = r.State // cells may share a run
		}
	}
	for _, e := range ended {
		p.Ended = e
		f.watch(p)
	}
	p.Ended = nil
	f.watch(p)
	f.states, f.holders = states, running
	return out, nil
}

// active is a running cell as it is shown.
func (f *Follower) active(r Result) console.Active {
	a := active{dir: f.study.dir(r.Cell)}
	a.look()
	label := f.study.Label(r.Cell)
	if r.Holder.Machine != "" {
		label += " on " + r.Holder.Machine
	}
	return console.Active{Label: label, Step: a.record.Step, Steps: r.Cell.steps(), Loss: float64(a.record.Loss), Began: r.Holder.Since}
}

// ended is a cell that has ended, as it is shown.
func (f *Follower) ended(r Result) *console.Ended {
	e := &console.Ended{Label: f.study.Label(r.Cell), State: string(r.State), Failed: r.State == Failed, Err: r.Err}
	if loss, ok := r.Summary["val_loss"]; ok {
		e.ValLoss = &loss
	}
	if holder, ok := f.holders[r.Cell.ID]; ok && !holder.Since.IsZero() {
		e.Took = time.Since(holder.Since)
	}
	return e
}
