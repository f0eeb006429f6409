package sdktest

import (
	"slices"
	"sync"

	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/spec"
)

// This file runs plugins that compute in their own process: quantizers that search for their state,
// and opaque optimizers, whose update is a call. All other checks hold for them too; those that
// look at programs find none. Tensors are binary32 on every machine.

// processCall is a call with what it may only read and what it has to write, by name. What is to be
// written holds NaN before.
type processCall struct {
	reads, writes map[string][]float32
	run           func() error
}

// repeatable makes one call again, after another call (between), and beside others: it
// may depend on its inputs alone, because a host repeats it after a crash. It returns the first
// call.
func (t *trial) repeatable(at example, what string, call func() processCall, between func()) processCall {
	first := call()
	t.must(at, first.run())
	same := func(when string, got processCall) {
		for name, want := range inOrder(first.writes) {
			t.equal(at, name+" of "+what+" that is "+when+",", []int{len(want)},
				doubles(got.writes[name]), doubles(want))
		}
	}
	between()
	again := call()
	for _, list := range again.writes {
		copy(list, slices.Repeat([]float32{7}, len(list)))
	}
	t.must(at, again.run())
	same("asked again, after another tensor", again)
	for name, want := range inOrder(call().reads) {
		t.equal(at, name+", which can only be read, after "+what+",", []int{len(want)},
			doubles(again.reads[name]), doubles(want))
	}
	var all sync.WaitGroup
	calls, errs := []processCall{call(), call(), call(), call()}, make([]error, 4)
	for i, c := range calls {
		all.Go(func() { errs[i] = c.run() })
	}
	all.Wait()
	for i, c := range calls {
		t.must(at, errs[i])
		same("beside others", c)
	}
	return first
}

// add lists tensors under a prefix.
func add(to map[string][]float32, prefix string, from map[string][]float32) {
	for name, v := range from {
		to[prefix+name] = v
	}
}

// maxSteps is the length of a run, as searches are told.
const maxSteps = 1 << 40

func (in *instance) searchInput(x []float64) sdk.SearchInput {
	s := sdk.SearchInput{X: singles(x), Step: in.step * in.SearchEvery, Steps: maxSteps,
		Trained: map[string][]float32{}, State: map[string][]float32{}, Next: map[string][]float32{}}
	for _, t := range in.Trained {
		s.Trained[t.Name] = singles(in.trained[spec.TrainedPrefix+t.Name].Floats)
	}
	for _, t := range in.State {
		s.State[t.Name] = singles(in.kept[spec.KeptPrefix+t.Name].Floats)
		s.Next[t.Name] = unwritten(len(s.State[t.Name]))
	}
	return s
}

func (q *quantizerRun) checkSearch(t *trial, in *instance, x []float64) {
	if in.SearchEvery == 0 || in.evaluates {
		return
	}
	in = in.advance(scaled(1.25, x)) // with a state that a search has found
	first := t.repeatable(in.at(), "a search", func() processCall {
		s := in.searchInput(x)
		c := processCall{map[string][]float32{"X": s.X}, map[string][]float32{}, func() error { return in.subject.Search(in.site, s) }}
		add(c.reads, "Trained ", s.Trained)
		add(c.reads, "State ", s.State)
		add(c.writes, "state ", s.Next)
		return c
	}, func() { in.from(normal(77, in.shape...)) })
	for name, v := range inOrder(first.writes) {
		t.finite(in.at(), name+", which a search is to write,", []int{len(v)}, doubles(v))
	}
}

func (o *optimizerRun) checkRetry(t *trial, s *tensorAnswer) {
	if !s.Opaque {
		return
	}
	r, other := s.train(t, Reference{}), s.train(t, Reference{})
	for range 3 {
		r.next(20)
	}
	g := r.gradient(20)
	t.repeatable(s.example, "an update", func() processCall {
		in := r.opaqueStep(r.x, g)
		c := processCall{map[string][]float32{"X": in.X, "Gradient": in.Gradient},
			map[string][]float32{"direction": in.Direction}, func() error { return s.subject.Step(s.tensor, in) }}
		add(c.reads, "State ", in.State)
		add(c.writes, "next state ", in.Next)
		return c
	}, func() { other.next(30) })
}
