package study

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/cage-qat/cage/host/train/metrics"
	"github.com/cage-qat/cage/host/train/rundir"
	"github.com/cage-qat/cage/internal/atomicdir"
)

// run returns the run directory of a cell.
func (s *Study) run(c Cell) rundir.Dir { return rundir.On(s.Files, c.Run) }

// quantize quantizes the model of a cell.
func (r *runner) quantize(ctx context.Context, c Cell) (State, *Failure, error) {
	switch ready, failure := r.awaitSource(ctx, c); {
	case failure != nil:
		return Failed, failure, nil
	case !ready:
		return Interrupted, nil, nil
	}
	// A process that lost its parent may still be at work.
	for busy := true; busy && ctx.Err() == nil; {
		var err error
		if busy, err = atomicdir.Busy(r.study.run(c).Path); err != nil {
			return Interrupted, nil, err
		}
		if busy {
			pause(ctx, lockRetry)
		}
	}
	if ctx.Err() != nil {
		return Interrupted, nil, nil
	}
	if _, done, err := metrics.ReadNumbers(r.study.run(c).Summary()); err == nil && done { // a damaged one is made again
		return Done, nil, nil
	}
	if left, err := r.study.run(c).Exists(); err != nil {
		return Interrupted, nil, err
	} else if left { // a damaged run
		if err := r.study.moveToStale(r.study.run(c).Path, c.ID+"-"+rundir.StudyModel); err != nil {
			return Interrupted, nil, err
		}
	}
	p := process{dir: r.study.dir(c), log: logFile, environment: c.environment, threads: r.plan.Threads, command: r.tool(c.Quantize.arguments(c))}
	failure, err := p.run(ctx)
	switch {
	case err != nil:
		return Interrupted, nil, err
	case failure != nil && ctx.Err() != nil:
		return Interrupted, nil, nil
	case failure != nil:
		return Failed, failure, nil
	}
	return Done, nil, nil
}

// tool returns the command that evaluates, with these arguments.
func (r *runner) tool(args []string) []string {
	return append(r.opts.Tool[:len(r.opts.Tool):len(r.opts.Tool)], args...)
}

// awaitSource waits until the model that is to be quantized is trained, or until its training is stopped. It fails if the
// model will not be trained.
func (r *runner) awaitSource(ctx context.Context, c Cell) (ready bool, failure *Failure) {
	if c.Quantize.Of == OfInit {
		return true, nil
	}
	source := r.study.Cells[c.from]
	for ctx.Err() == nil {
		toBeTrained := slices.ContainsFunc(r.plan.Run, func(o Cell) bool { return o.ID == source.ID })
		if _, trained, err := metrics.ReadNumbers(r.study.run(source).Summary()); trained && err == nil && !(toBeTrained && r.stateOf(source) == Stale) {
			return true, nil
		}
		if r.wasStopped(source) {
			return false, nil
		}
		if !toBeTrained || r.stateOf(source) == Failed {
			return false, &Failure{Error: fmt.Sprintf("the model that it is to be made of is not trained: %s", r.study.Label(source)), File: logFile}
		}
		pause(ctx, interval)
	}
	return false, nil
}

// pause waits for a while, or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// withSources also selects the cells whose models are quantized in selected cells.
func (s *Study) withSources(selected map[string]bool) {
	for _, c := range s.Cells {
		if selected[c.ID] && c.Quantize != nil && c.Quantize.Of == OfFullPrecision {
			selected[s.Cells[c.from].ID] = true
		}
	}
}

// findRemade gives the state [Stale] to quantized models whose source is another run now.
func (s *Study) findRemade(results []Result) {
	s.markRemade(results, func(c, source Cell) bool {
		was, now := identity(s.run(c)).Initial.Run, identity(s.run(source)).Run
		return now != "" && was != "" && now != was
	})
}

// FindRemade gives the state [Stale] to quantized models made from a model that is stale.
func (s *Study) FindRemade(results []Result) {
	s.markRemade(results, func(_, _ Cell) bool { return false })
}

// findOrphaned gives the state [Stale] to quantized models whose source is missing, and will be trained from the beginning.
func (s *Study) findOrphaned(results []Result) {
	states := statesOf(results)
	s.markRemade(results, func(_, source Cell) bool { return states[source.ID] == Missing })
}

func (s *Study) markRemade(results []Result, remade func(c, source Cell) bool) {
	states := statesOf(results)
	for i, r := range results {
		c := r.Cell
		if c.Quantize == nil || c.Quantize.Of != OfFullPrecision || !r.Trained() {
			continue
		}
		source := s.Cells[c.from]
		if states[source.ID] == Stale || remade(c, source) {
			results[i] = Result{Cell: c, State: Stale, Err: "the model that it was made of is another one now: " + s.Label(source)}
		}
	}
}

// identities are those of a run and of its source.
type identities struct {
	Run     string `json:"run"`
	Initial struct {
		Run string `json:"run"`
	} `json:"initial"`
}

// identity reads the identities that a run records; they are empty if it records none.
func identity(dir rundir.Dir) (id identities) {
	text, err := dir.Provenance().ReadFile()
	if err != nil || json.Unmarshal(text, &id) != nil {
		return identities{}
	}
	return id
}
