package sdktest

import (
	"fmt"
	"slices"

	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/reference"
	"github.com/cage-qat/cage/sdk/program/transform"
	"github.com/cage-qat/cage/sdk/spec"
)

// horizon is the number of updates within which every part of the state must have an
// effect. It is large enough to include refreshes, unless that would take more updates
// than a test can afford.
func (s *tensorAnswer) horizon() int {
	const most = 400
	h := 6
	if s.Rate != nil {
		h = 24 // an estimate of a rate takes its time
	}
	if s.Due.First > 0 {
		h = max(h, s.Due.First+2)
	}
	if s.Due.Every > 0 {
		h = max(h, s.Due.First+s.Due.Next+2*s.Due.Every+2)
	}
	if s.ProbeDue.First > 0 {
		h = max(h, s.ProbeDue.First+2)
	}
	return min(h, most)
}

// checkState changes one state tensor at a time: all of them with the default settings, and
// with other settings those that the defaults do not have.
func (o *optimizerRun) checkState(t *trial) {
	seen := map[string]bool{}
	for i, v := range o.space.core() {
		list, _ := o.accepted(v)
		for _, s := range list {
			for _, tensor := range s.State {
				if i > 0 && seen[tensor.Name] {
					continue
				}
				seen[tensor.Name] = true
				t.announce()
				t.run(func() { s.checkChanges(t, spec.StatePrefix+tensor.Name) })
				t.run(func() { s.checkEffect(t, spec.StatePrefix+tensor.Name) })
			}
		}
	}
}

// checkChanges fails unless updates change the named state tensor, or it keeps something of x at
// the start.
func (s *tensorAnswer) checkChanges(t *trial, name string) {
	if !s.Opaque {
		if out, _ := s.Init.Output(name); transform.Needs(s.Init, []program.Output{{Value: out}})[0] {
			return
		}
	}
	r := s.train(t, Oracle{})
	initial := r.state[name].Floats
	for range s.horizon() {
		r.next(30)
		if !slices.Equal(initial, r.state[name].Floats) {
			return
		}
	}
	if !s.Opaque && s.holdsStart(name) {
		t.notef("%s holds what it was made of at the start", name)
		return
	}
	t.failf(s.example, "%s is still what it was at the start after %d updates", name, s.horizon())
}

// holdsStart reports whether the initial value of a state tensor depends on x, and updates read it:
// then it may stay as it is.
func (s *tensorAnswer) holdsStart(name string) bool {
	p, err := transform.Trim(s.Init, name)
	if err != nil || !transform.Needs(p, p.Outputs)[p.Input(spec.InputX)] {
		return false
	}
	others := slices.DeleteFunc(slices.Clone(s.Update.Outputs), func(o program.Output) bool { return o.Name == name })
	return transform.Needs(s.Update, others)[s.Update.Input(name)]
}

// checkEffect fails unless a change of the named state tensor's content changes a later
// direction. The content is changed between two of the first updates or after the first
// refresh; or between a refresh and its update, for a tensor that every refresh renews.
func (s *tensorAnswer) checkEffect(t *trial, name string) {
	for _, within := range []bool{false, true} {
		for _, after := range []int{1, 2, s.Due.First, s.Due.First + 1, -1, -2} {
			r := s.train(t, Oracle{})
			if after < 0 { // directions may be clipped where gradients are large
				after, r.gradients = -after, 1e-3
			}
			for range after {
				r.next(30)
			}
			other := r.fork()
			if within {
				other.beforeUpdate = func() { other.alter(name); other.beforeUpdate = nil }
			} else {
				other.alter(name)
			}
			if r.differs(other, 40) {
				return
			}
		}
	}
	t.failf(s.example, "what %s holds has no effect on %d later directions", name, s.horizon())
}

// differs continues both trainings along one path and reports whether, within the horizon, the
// other one has a different direction, rate or result, or fails. It may fail because a state that
// no training reaches can break a factorization.
func (r *training) differs(other *training, seed uint64) bool {
	for range r.horizon() {
		g := r.gradient(seed)
		u := r.update(r.x, g)
		if v, err := other.step(r.x, g); err != nil || !slices.Equal(u, v) || r.rate != other.rate {
			return true
		}
		r.move(u)
		w, err := r.evaluated(r.x)
		r.t.must(r.at(), err)
		if v, err := other.evaluated(r.x); err != nil || !slices.Equal(w, v) {
			return true
		}
	}
	return false
}

func (r *training) alter(name string) {
	v := r.state[name]
	changed := scaled(1.5, v.Floats)
	for i := range changed {
		changed[i] += 0.125 * float64(1+i%3)
	}
	r.state[name] = r.kept(name, reference.Floats(changed, v.Type.Shape...))
}

// checkCheckpoint compares a training with one whose state is rounded to binary32
// midway, as in a checkpoint, for the settings given and the tensors that models have.
func (o *optimizerRun) checkCheckpoint(t *trial) {
	// Statistics of fewer gradients than a vector has elements are singular, and
	// preconditioners may do anything in their null space.
	const before, after = 8, 5
	o.byDefault(func(_ *trial, s *tensorAnswer) {
		if len(s.State) == 0 {
			return
		}
		r := s.train(t, Oracle{})
		for range before {
			r.next(50)
		}
		saved := r.fork()
		for name, v := range saved.state {
			saved.state[name] = v.Single()
		}
		for range after {
			got, want := saved.next(60), r.next(60)
			t.within(s.example, fmt.Sprintf("direction of update %d after a checkpoint", r.updates), s.shape, got, want, upTo(1e-3*largest(want)))
		}
	})(t)
}

func (o *optimizerRun) checkStorage(t *trial, s *tensorAnswer, m Machine) {
	if !slices.ContainsFunc(s.State, func(x spec.Tensor) bool { return x.Storage == sdk.StoreInt8 || x.Storage == sdk.StoreUint8 }) {
		return
	}
	t.announce()
	for _, size := range sizes {
		r := s.untrained(t, m, normal(11, s.shape...))
		r.returned = func(name string, v reference.Tensor) {
			storage := s.storage(name)
			for i, x := range v.Floats {
				if storage != sdk.StoreFloat32 && storage != sdk.StoreBFloat16 && storage.Kept(x) != x {
					t.failf(r.at(), "element %d of %s is %v after update %d, which is kept as %s: return whole numbers in its range", i, name, x, r.updates, storage)
					return
				}
			}
		}
		t.must(r.at(), r.init())
		for range 5 {
			r.x = axpy(r.x, -r.rate, r.update(r.x, rounded(scaled(size, r.gradient(90)))))
		}
	}
}

func (o *optimizerRun) checkRefresh(t *trial, s *tensorAnswer) {
	if s.Due.First == 0 || s.Due.First > s.horizon() {
		return
	}
	t.announce()
	t.notef("due at %d, %d, every %d", s.Due.First, s.Due.Next, s.Due.Every)
	r := s.train(t, Oracle{})
	without := r.fork()
	without.skipRefresh = true
	if !r.differs(without, 70) {
		t.failf(s.example, "the directions of %d updates are the same with refreshes and without", s.horizon())
	}
}

func (o *optimizerRun) checkDevices(t *trial) {
	if len(o.machines) == 1 {
		t.skipf("no device")
		return
	}
	o.onOracle(func(_ *trial, s *tensorAnswer) {
		r := s.untrained(t, Oracle{}, normal(11, s.shape...))
		r.single = true
		r.trace = func(what string, p *program.Program, inputs map[string]reference.Tensor) {
			if !factorizes(p) {
				t.compare(s.example, o.machines[1:], fmt.Sprintf("%s %d: ", what, r.updates), p, inputs)
			}
		}
		t.must(s.example, r.init())
		for range 5 {
			r.next(80)
		}
	})(t)
}
