package refresh

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/compute/update"
	"github.com/cage-qat/cage/internal/recovered"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/reference"
	"github.com/cage-qat/cage/sdk/spec"
)

// A Subject is a trained tensor whose optimizer may renew preconditioners.
type Subject struct {
	Tensor    string
	Optimizer spec.Optimizer
	// Delay is the number of updates by which refreshes take effect late; see [CheckDelay].
	// They are computed while these updates run. The first refresh is never late,
	// because there is no older preconditioner to use meanwhile.
	Delay int
}

// A Refresher renews the preconditioners of a training. It is not safe for concurrent
// use.
type Refresher struct {
	Execute  Executor // runs the programs
	dev      *engine.Device
	divided  update.Divided
	subjects []subject
	appliers map[string]*update.Update // the second parts of split refreshes, by the hash of their programs
}

// subject is a Subject with its refresh in two parts, nil without a delay.
type subject struct {
	Subject
	split *split
}

// New prepares the refreshes of tensors, and compiles the parts of them that run on the device.
// Tensors whose optimizers have no refreshes are ignored. divided reports which states are sharded
// by rows.
func New(dev *engine.Device, list []Subject, divided update.Divided) (*Refresher, error) {
	r := &Refresher{dev: dev, divided: divided, Execute: Execute, appliers: map[string]*update.Update{}}
	for _, s := range list {
		if s.Optimizer.FirstRefresh == nil && s.Optimizer.Refresh == nil {
			continue
		}
		own := subject{Subject: s}
		if s.Delay != 0 && s.Optimizer.Refresh != nil {
			var err error
			if own.split, err = splitDelayed(s.Optimizer, s.Delay); err != nil {
				return nil, fmt.Errorf("refresh of %s: %w", s.Tensor, err)
			}
			// The second part runs on the device.
			if second := own.split.apply; second != nil && r.appliers[second.Hash()] == nil {
				r.appliers[second.Hash()], err = update.Compile(r.dev, "apply", []update.Job{applyJob(second)}, update.Options{Divided: r.appliedTo()})
				if err != nil {
					return nil, fmt.Errorf("refresh of %s: %w", s.Tensor, err)
				}
			}
		}
		r.subjects = append(r.subjects, own)
	}
	return r, nil
}

// Any reports whether any preconditioner is ever renewed.
func (r *Refresher) Any() bool { return len(r.subjects) > 0 }

// Late reports whether any refresh takes effect late.
func (r *Refresher) Late() bool {
	return slices.ContainsFunc(r.subjects, func(s subject) bool { return s.split != nil })
}

// Close frees the compiled parts.
func (r *Refresher) Close() {
	for _, u := range r.appliers {
		u.Close()
	}
}

// Due reports whether a refresh is due at update t.
func (r *Refresher) Due(t int) bool {
	return slices.ContainsFunc(r.subjects, func(s subject) bool { return s.program(t) != nil })
}

// program returns the refresh program that is due at update t, nil if there is none.
func (s *subject) program(t int) *program.Program {
	switch now, first := s.Optimizer.Due.At(t); {
	case now && first:
		return s.Optimizer.FirstRefresh
	case now:
		return s.Optimizer.Refresh
	}
	return nil
}

// work estimates the cost of a refresh, up to a factor: a factorization costs the size of its
// matrices times the length of their last axis.
func (s *subject) work() (sum int64) {
	for _, st := range s.Optimizer.State {
		if rank := len(st.Shape); rank > 0 {
			sum += program.FloatType(st.Shape...).Size() * int64(st.Shape[rank-1])
		}
	}
	return sum
}

// state returns the name of the tensor that an input or output of the subject's programs is
// bound to.
func (s *subject) state(input string) string {
	return program.KindState.PartOf(s.Tensor, strings.TrimPrefix(input, spec.StatePrefix))
}

// Run executes the refreshes that are due at update t, in parallel, on the states among the
// tensors: immediately or, with a delay, while the following steps run. It returns the names of the
// tensors whose preconditioner could not be renewed and is unchanged.
func (r *Refresher) Run(pending *Pending, tensors update.Tensors, t int) (failed []string, err error) {
	var now, later []int
	var due []int
	for i, s := range r.subjects {
		if s.program(t) != nil {
			due = append(due, i)
		}
	}
	// Largest first, so that the last ones, during which processors become idle, are short.
	slices.SortStableFunc(due, func(i, j int) int { return cmp.Compare(r.subjects[j].work(), r.subjects[i].work()) })
	for _, i := range due {
		if s := &r.subjects[i]; s.split != nil && s.program(t) == s.Optimizer.Refresh {
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
	results, outcomes := make([]update.Tensors, len(now)), make(map[int]error, len(now))
	failures := make([]error, len(now))
	for n, i := range now {
		work.Go(func() (err error) {
			results[n], failures[n], err = r.compute(i, tensors, t)
			return err
		})
	}
	err = work.Wait()
	for n, i := range now {
		outcomes[i] = failures[n]
		for name, b := range results[n] {
			tensors[name].Finalize()
			tensors[name] = b
		}
	}
	if err != nil {
		return nil, err
	}
	return r.countFailures(pending, outcomes)
}

// compute executes the refresh program of a subject and returns its new states. failed is the
// error of the program itself, such as an iteration for eigenvalues that does not converge.
func (r *Refresher) compute(i int, tensors update.Tensors, t int) (out update.Tensors, failed, err error) {
	s := &r.subjects[i]
	p := s.program(t)
	out = update.Tensors{}
	failed, err = r.Execute.compute(p, t, func(input string, single []float32) ([]float32, error) {
		return single, engine.DownloadInto(tensors[s.state(input)], single)
	}, func(output string, _ []int, values []float32) (err error) {
		out[s.state(output)], err = engine.UploadLike(tensors[s.state(output)], values)
		return err
	})
	if err != nil {
		err = fmt.Errorf("refresh of %s: %w", s.Tensor, err)
	}
	return out, failed, err
}

// toleratedFailures is the number of refreshes in a row of one tensor that may fail,
// as in distributed Shampoo.
const toleratedFailures = 3

// countFailures counts the failed refreshes of each tensor. outcomes maps subjects to the error of
// their refresh, nil for success. A tensor whose refresh failed keeps its preconditioner. Too many
// failures in a row end the training, as does a fault of the executor.
func (r *Refresher) countFailures(pending *Pending, outcomes map[int]error) (failed []string, err error) {
	for i := range r.subjects {
		err, ran := outcomes[i]
		name := r.subjects[i].Tensor
		if !ran {
			continue
		}
		if err == nil {
			delete(pending.failures, name)
			continue
		}
		if isFault(err) {
			return failed, fmt.Errorf("refresh of %s: %w", name, err)
		}
		if pending.failures == nil {
			pending.failures = map[string]int{}
		}
		pending.failures[name]++
		failed = append(failed, name)
		if pending.failures[name] > toleratedFailures {
			return failed, fmt.Errorf("refresh of %s failed %d times in a row: %w", name, pending.failures[name], err)
		}
	}
	return failed, nil
}

// Executor runs a refresh program. Several calls may run at once.
type Executor func(*program.Program, map[string]reference.Tensor) (map[string]reference.Tensor, error)

// compute executes a refresh program of update t on tensors of binary32. read returns the elements
// of an input, in the given slice or another one. write receives the elements of an output, which
// are valid until it returns. failed is the error of the program itself; nothing is written then.
func (e Executor) compute(p *program.Program, t int, read func(input string, single []float32) ([]float32, error),
	write func(output string, dims []int, values []float32) error) (failed, err error) {
	largest := int64(0)
	for _, input := range p.Inputs {
		largest = max(largest, input.Type.Size())
	}
	for _, output := range p.Outputs {
		largest = max(largest, p.TypeOf(output.Value).Size())
	}
	single := make([]float32, largest)
	in := map[string]reference.Tensor{}
	for _, input := range p.Inputs {
		if input.Name == spec.InputStep {
			in[input.Name] = reference.Float(float64(t))
			continue
		}
		values, err := read(input.Name, single[:input.Type.Size()])
		if err != nil {
			return nil, err
		}
		double := make([]float64, len(values))
		for i, x := range values {
			double[i] = float64(x)
		}
		in[input.Name] = reference.Floats(double, input.Type.Shape...)
	}
	var out map[string]reference.Tensor
	failed = func() (err error) {
		defer recovered.Catch("refresh", p.Name, &err)
		out, err = e(p, in)
		return err
	}()
	if failed != nil {
		return failed, nil
	}
	for name, value := range out {
		single := single[:len(value.Floats)]
		for i, x := range value.Floats {
			single[i] = float32(x)
		}
		if err := write(name, value.Type.Shape, single); err != nil {
			return nil, err
		}
	}
	return nil, nil
}
