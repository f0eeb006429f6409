package refresh

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/compute/stage"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/spec"
)

// A Target is a trained tensor whose optimizer may have preconditioners to renew.
type Target struct {
	Tensor    string
	Optimizer spec.Optimizer
	// Delay is the number of updates by which refreshes take effect late; see [CheckDelay]. They
	// are computed in the meantime. The first refresh is never late, because there is no older
	// preconditioner that could be used.
	Delay int
}

// A Refresher renews the preconditioners of a training run. It is not safe for concurrent use.
type Refresher struct {
	Execute  Executor // runs the programs
	dev      *engine.Device
	divided  stage.Divided
	targets  []target
	appliers map[string]*stage.Update // second parts of split refreshes, by the programs' hashes
}

// A target is a Target with the two parts of its refresh; split is nil if it is not delayed.
type target struct {
	Target
	split *split
}

// New prepares the refreshes of tensors, and compiles their parts that run on the device. It
// ignores tensors whose optimizers have no refreshes. divided reports which states are sharded by
// rows.
func New(dev *engine.Device, list []Target, divided stage.Divided) (*Refresher, error) {
	r := &Refresher{dev: dev, divided: divided, Execute: Execute}
	r.appliers = map[string]*stage.Update{}
	for _, s := range list {
		if s.Optimizer.FirstRefresh == nil && s.Optimizer.Refresh == nil {
			continue
		}
		own := target{Target: s}
		if s.Delay != 0 && s.Optimizer.Refresh != nil {
			var err error
			if own.split, err = splitDelayed(s.Optimizer, s.Delay); err != nil {
				return nil, fmt.Errorf("refresh of %s: %w", s.Tensor, err)
			}
			// Compile the second part, which runs on the device.
			if second := own.split.apply; second != nil && r.appliers[second.Hash()] == nil {
				jobs := []stage.Job{applyJob(second)}
				u, err := stage.CompileUpdate(r.dev, "apply", jobs, r.appliedTo())
				if err != nil {
					return nil, fmt.Errorf("refresh of %s: %w", s.Tensor, err)
				}
				r.appliers[second.Hash()] = u
			}
		}
		r.targets = append(r.targets, own)
	}
	return r, nil
}

// Any reports whether any preconditioner has refreshes.
func (r *Refresher) Any() bool { return len(r.targets) > 0 }

// Late reports whether any refresh takes effect late.
func (r *Refresher) Late() bool {
	return slices.ContainsFunc(r.targets, func(s target) bool { return s.split != nil })
}

// Close frees the compiled parts.
func (r *Refresher) Close() {
	for _, u := range r.appliers {
		u.Close()
	}
}

// Due reports whether a refresh is due at update t.
func (r *Refresher) Due(t int) bool {
	return slices.ContainsFunc(r.targets, func(s target) bool { return s.program(t) != nil })
}

// program returns the refresh program that is due at update t, or nil if there is none.
func (s *target) program(t int) *program.Program {
	switch now, first := s.Optimizer.Due.At(t); {
	case now && first:
		return s.Optimizer.FirstRefresh
	case now:
		return s.Optimizer.Refresh
	}
	return nil
}

// work estimates the relative cost of a refresh: a factorization costs the size of its matrices
// times the length of their last axis.
func (s *target) work() (sum int64) {
	for _, st := range s.Optimizer.State {
		if rank := len(st.Shape); rank > 0 {
			sum += program.FloatType(st.Shape...).Size() * int64(st.Shape[rank-1])
		}
	}
	return sum
}

// state returns the name of the tensor to which an input or output of the target's programs is
// bound.
func (s *target) state(input string) string {
	if input == spec.InputGradient {
		return program.KindGivenGradient.Of(s.Tensor)
	}
	return program.KindState.PartOf(s.Tensor, strings.TrimPrefix(input, spec.StatePrefix))
}

// Run executes the refreshes that are due at update t, in parallel, on their states in tensors.
// They take effect immediately or, if they are delayed, are computed while the following steps run.
// It returns the names of the tensors whose preconditioners could not be renewed and are unchanged.
func (r *Refresher) Run(
	pending *Pending, tensors stage.Tensors, t int,
) (failed []string, err error) {
	var now, later, due []int
	for i, s := range r.targets {
		if s.program(t) != nil {
			due = append(due, i)
		}
	}
	// Start the largest first, so that few processors are idle while the last ones run.
	slices.SortStableFunc(due, func(i, j int) int {
		return cmp.Compare(r.targets[j].work(), r.targets[i].work())
	})
	for _, i := range due {
		if s := &r.targets[i]; s.split != nil && s.program(t) == s.Optimizer.Refresh {
			later = append(later, i)
		} else {
			now = append(now, i)
		}
	}
	if err := r.begin(pending, tensors, later, t); err != nil {
		return nil, err
	}
	work := errgroup.Group{}
	work.SetLimit(r.dev.Workers())
	refreshes, outcomes := make([]*pendingRefresh, len(now)), make(map[int]error, len(now))
	for n, i := range now {
		s := &r.targets[i]
		p := &pendingRefresh{target: s, step: t, program: s.program(t), done: make(chan struct{})}
		refreshes[n] = p
		work.Go(func() error {
			err := p.snapshot(tensors)
			if err == nil {
				p.compute(r.Execute)
				p.in = nil // only its results are needed
			}
			return err
		})
	}
	if err := work.Wait(); err != nil {
		return nil, err
	}
	for n, i := range now {
		p := refreshes[n]
		if outcomes[i] = p.failed; p.failed == nil {
			if err := r.install(tensors, p); err != nil {
				return nil, err
			}
		}
	}
	return r.countFailures(pending, outcomes)
}

// toleratedFailures is how many refreshes of a tensor may fail in a row, as in distributed Shampoo.
const toleratedFailures = 3

// countFailures counts the failed refreshes of each tensor. outcomes maps the indices of targets to
// the errors of their refreshes, nil for success. A tensor whose refresh failed keeps its
// preconditioner. Too many failures in a row, or a fault of the executor, are an error.
func (r *Refresher) countFailures(
	pending *Pending, outcomes map[int]error,
) (failed []string, err error) {
	for i := range r.targets {
		err, ran := outcomes[i]
		name := r.targets[i].Tensor
		if !ran {
			continue
		}
		if err == nil {
			delete(pending.Failures, name)
			continue
		}
		if isFault(err) {
			return failed, fmt.Errorf("refresh of %s: %w", name, err)
		}
		if pending.Failures == nil {
			pending.Failures = map[string]int{}
		}
		pending.Failures[name]++
		failed = append(failed, name)
		if pending.Failures[name] > toleratedFailures {
			return failed, fmt.Errorf("refresh of %s failed %d times in a row: %w",
				name, pending.Failures[name], err)
		}
	}
	return failed, nil
}

// An Executor runs a refresh program. Several calls may run at once.
type Executor func(p *program.Program, inputs tensors) (tensors, error)
