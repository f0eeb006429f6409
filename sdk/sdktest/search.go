package sdktest

import (
	"fmt"
	"sync"

	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/reference"
	"github.com/cage-qat/cage/sdk/spec"
)

// This file runs quantizers that search: the state follows from a call in the place of a program. Tensors are binary32 on every
// machine.

// manySteps is the length of a run, as searches are told.
const manySteps = 1 << 40

// searchInput is the input of a search in x. What the author is to write holds NaN before.
func (in *instance) searchInput(x []float64) sdk.SearchInput {
	s := sdk.SearchInput{X: singles(x), Step: in.step * in.SearchEvery, Steps: manySteps, Trained: map[string][]float32{}, State: map[string][]float32{}, Next: map[string][]float32{}}
	for _, t := range in.Trained {
		s.Trained[t.Name] = singles(in.trained[spec.TrainedPrefix+t.Name].Floats)
	}
	for _, t := range in.State {
		s.State[t.Name] = singles(in.kept[spec.KeptPrefix+t.Name].Floats)
		s.Next[t.Name] = unwritten(int(program.FloatType(t.Shape...).Size()))
	}
	return s
}

func (in *instance) searched(x []float64) map[string]reference.Tensor {
	s := in.searchInput(x)
	in.t.must(in.at(), in.search(s))
	found := map[string]reference.Tensor{}
	for _, t := range in.State {
		found[spec.KeptPrefix+t.Name] = reference.Floats(doubles(s.Next[t.Name]), t.Shape...)
	}
	return found
}

// checkSearch asks for one search again and again: it may go by its inputs alone, because a host asks again after a crash.
func (q *quantizerRun) checkSearch(t *trial, in *instance, x []float64) {
	if in.SearchEvery == 0 || in.evaluates {
		return
	}
	in = in.advance(scaled(1.25, x)) // with a state that a search has found
	first := in.searchInput(x)
	t.must(in.at(), in.search(first))
	for _, st := range in.State {
		t.finite(in.at(), "state "+st.Name+", which a search is to write,", st.Shape, doubles(first.Next[st.Name]))
	}
	in.from(normal(77, in.shape...)) // another tensor, for all that the plugin knows
	again := in.searchInput(x)
	for name := range again.Next {
		again.Next[name] = singles(full(7, len(again.Next[name])))
	}
	t.must(in.at(), in.search(again))
	in.sameSearch("asked again, after another tensor", first, again)
	in.sameGiven(in.searchInput(x), again)

	const many = 4
	var all sync.WaitGroup
	list, errs := make([]sdk.SearchInput, many), make([]error, many)
	for i := range list {
		list[i] = in.searchInput(x)
	}
	for i := range list {
		all.Go(func() { errs[i] = in.search(list[i]) })
	}
	all.Wait()
	for i, s := range list {
		t.must(in.at(), errs[i])
		in.sameSearch("beside others", first, s)
	}
}

// sameSearch fails unless two searches have found the same.
func (in *instance) sameSearch(when string, want, got sdk.SearchInput) {
	for _, st := range in.State {
		in.t.equal(in.at(), fmt.Sprintf("state %s of a search that is %s,", st.Name, when), st.Shape, doubles(got.Next[st.Name]), doubles(want.Next[st.Name]))
	}
}

// sameGiven fails if a search has changed what it may only read.
func (in *instance) sameGiven(want, got sdk.SearchInput) {
	const what = ", which can only be read, after a search,"
	in.t.equal(in.at(), "X"+what, in.shape, doubles(got.X), doubles(want.X))
	for _, t := range in.Trained {
		in.t.equal(in.at(), "Trained "+t.Name+what, t.Shape, doubles(got.Trained[t.Name]), doubles(want.Trained[t.Name]))
	}
	for _, t := range in.State {
		in.t.equal(in.at(), "State "+t.Name+what, t.Shape, doubles(got.State[t.Name]), doubles(want.State[t.Name]))
	}
}
