package sdktest

import (
	"fmt"
	"math"
	"slices"
	"sync"

	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/reference"
	"github.com/cage-qat/cage/sdk/spec"
)

// This file runs opaque optimizers, which have no programs: an update is a call. All checks of optimizers hold for them
// too; those that look at programs find none. Tensors are binary32 on every machine.

// opaqueStep is the input of the next update. What the author is to write holds NaN before.
func (r *training) opaqueStep(x, gradient []float64) sdk.OpaqueStep {
	in := sdk.OpaqueStep{
		X: singles(x), Gradient: singles(gradient), Direction: unwritten(len(x)),
		Step: r.updates + 1 + r.stepShift, Steps: int(r.steps), Rate: r.schedule, Loss: r.loss,
		State: map[string][]float32{}, Next: map[string][]float32{},
	}
	for _, t := range r.State {
		in.State[t.Name] = singles(r.state[spec.StatePrefix+t.Name].Floats)
		in.Next[t.Name] = unwritten(len(in.State[t.Name]))
	}
	return in
}

func (r *training) stepOpaque(x, gradient []float64) (u []float64, err error) {
	r.rate = r.schedule
	in := r.opaqueStep(x, gradient)
	if err := r.opaque(in); err != nil {
		return nil, err
	}
	r.updates++
	for _, t := range r.State {
		r.state[spec.StatePrefix+t.Name] = reference.Floats(doubles(in.Next[t.Name]), t.Shape...)
	}
	return doubles(in.Direction), nil
}

func (r *training) initOpaque() {
	for _, t := range r.State {
		r.state[spec.StatePrefix+t.Name] = reference.Floats(make([]float64, program.FloatType(t.Shape...).Size()), t.Shape...)
	}
}

// checkRetry asks for one update again and again: an update may go by its inputs alone, because a host asks again after a crash.
func (o *optimizerRun) checkRetry(t *trial, s *tensorAnswer) {
	if !s.Opaque {
		return
	}
	r, other := s.train(t, Oracle{}), s.train(t, Oracle{})
	for range 3 {
		r.next(20)
	}
	g := r.gradient(20)
	first := r.opaqueStep(r.x, g)
	t.must(s.example, s.opaque(first))
	again := r.opaqueStep(r.x, g)
	fillUnwritten(again, 7)
	other.next(30) // of another tensor, for all that the plugin knows
	t.must(s.example, s.opaque(again))
	s.sameStep(t, "asked again, after another tensor", first, again)
	unchanged := r.opaqueStep(r.x, g)
	s.sameReads(t, unchanged, again)

	const many = 4
	var all sync.WaitGroup
	list, errs := make([]sdk.OpaqueStep, many), make([]error, many)
	for i := range list {
		list[i] = r.opaqueStep(r.x, g)
	}
	for i := range list {
		all.Go(func() { errs[i] = s.opaque(list[i]) })
	}
	all.Wait()
	for i, in := range list {
		t.must(s.example, errs[i])
		s.sameStep(t, "beside others", first, in)
	}
}

// sameStep fails unless two updates have written the same.
func (s *tensorAnswer) sameStep(t *trial, when string, want, got sdk.OpaqueStep) {
	t.equal(s.example, "direction of an update that is "+when+",", s.shape, doubles(got.Direction), doubles(want.Direction))
	for _, st := range s.State {
		t.equal(s.example, fmt.Sprintf("next state %s of an update that is %s,", st.Name, when), st.Shape, doubles(got.Next[st.Name]), doubles(want.Next[st.Name]))
	}
}

// sameReads fails if an update has changed what it may only read.
func (s *tensorAnswer) sameReads(t *trial, want, got sdk.OpaqueStep) {
	const what = ", which can only be read, after an update,"
	t.equal(s.example, "X"+what, s.shape, doubles(got.X), doubles(want.X))
	t.equal(s.example, "Gradient"+what, s.shape, doubles(got.Gradient), doubles(want.Gradient))
	for _, st := range s.State {
		t.equal(s.example, "State "+st.Name+what, st.Shape, doubles(got.State[st.Name]), doubles(want.State[st.Name]))
	}
}

func fillUnwritten(in sdk.OpaqueStep, v float32) {
	for _, list := range in.Next {
		copy(list, slices.Repeat([]float32{v}, len(list)))
	}
	copy(in.Direction, slices.Repeat([]float32{v}, len(in.Direction)))
}

func unwritten(n int) []float32 { return slices.Repeat([]float32{float32(math.NaN())}, n) }

func singles(v []float64) []float32 {
	out := make([]float32, len(v))
	for i, x := range v {
		out[i] = float32(x)
	}
	return out
}

func doubles(v []float32) []float64 {
	out := make([]float64, len(v))
	for i, x := range v {
		out[i] = float64(x)
	}
	return out
}
