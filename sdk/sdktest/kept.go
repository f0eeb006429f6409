package sdktest

import (
	"reflect"
	"slices"

	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program/reference"
	"github.com/cage-qat/cage/sdk/spec"
)

// keptSteps is how many steps the state of a quantizer is followed, and maxDrift by which factor
// the error may grow when they all see the same tensor.
const (
	keptSteps = 64
	maxDrift  = 3
)

func (q *quantizerRun) checkKept(t *trial) {
	q.everywhere(func(_ *trial, in *instance, x []float64) {
		if len(in.State) == 0 || in.evaluates {
			return
		}
		t.announce()
		for _, sample := range startingSamples(x) {
			from := in.from(sample)
			for name, v := range inOrder(from.kept) {
				t.finite(in.at(), "initial "+name, v.Type.Shape, v.Floats)
			}
			t.run(func() { in.finite(sample, "value with the initial state", from.quantize(sample).value) })
			t.run(func() { from.advance(sample) })
		}
		t.run(func() { in.drift(x) })
	})(t)
	q.onOracle(func(_ *trial, in *instance, x []float64) {
		if len(x) < enoughEntries || len(in.State) == 0 || in.evaluates {
			return
		}
		for _, s := range in.State {
			if name := spec.KeptPrefix + s.Name; !in.constant(name) {
				t.run(func() { in.changes(name, x) })
			}
			t.run(func() { in.isRead(spec.KeptPrefix+s.Name, x) })
		}
		t.run(func() { in.evaluatesWithState(x) })
	})(t)
	q.shapesFor(t, "state", func(s *siteAnswer) []spec.Tensor { return s.State })
	for _, v := range q.space.core() {
		q.combine(t, v)
	}
}

func (in *instance) advance(x []float64) *instance {
	other := in.atStep(in.step + 1)
	other.kept = other.next(x)
	for name, v := range inOrder(other.kept) {
		in.t.finite(in.at(), "next "+name, v.Type.Shape, v.Floats)
	}
	return other
}

func (in *instance) next(x []float64) map[string]reference.Tensor {
	if in.SearchEvery > 0 {
		return in.searched(x)
	}
	return inSingle(in.run(in.Next, in.inputsOf(in.Next, x)))
}

// constant says that a state tensor is found once, from statistics of columns, and that Next
// returns it as it is.
func (in *instance) constant(name string) bool {
	if in.Next == nil {
		return false
	}
	id, _ := in.Next.Output(name)
	return len(in.InitState.Inputs) > 1 && int(id) == in.Next.Input(name)
}

// combine takes a step with a batch, and one with each half: of a maximum, the larger one must be
// that of the batch.
func (q *quantizerRun) combine(t *trial, v variant) {
	const rows, d = 8, 64
	whole, err := q.ask(v, sdk.RoleActivation, rows, d)
	half, errHalf := q.ask(v, sdk.RoleActivation, rows/2, d)
	if err != nil || errHalf != nil || whole.Next == nil || whole.Draws() {
		return
	}
	t.run(func() {
		x := normal(23, rows, d)
		in := whole.instance(t, Oracle{}, x)
		part := half.instance(t, Oracle{}, x[:rows/2*d])
		part.trained, part.kept = in.trained, in.kept
		x = scaled(3, x) // or else it would be what the state started from
		next := in.run(in.Next, in.inputsOf(in.Next, x))
		first, second := part.run(part.Next, part.inputsOf(part.Next, x[:rows/2*d])), part.run(part.Next, part.inputsOf(part.Next, x[rows/2*d:]))
		for _, s := range whole.State {
			if !s.Maximum {
				continue
			}
			name := spec.KeptPrefix + s.Name
			larger := slices.Clone(first[name].Floats)
			for i, v := range second[name].Floats {
				larger[i] = max(larger[i], v)
			}
			t.within(in.at(), "next "+name+", against the maximum over both halves of the batch,", s.Shape, next[name].Floats, larger, upTo(exactness*largest(larger)))
		}
	})
}

// drift repeats one tensor: what was good levels for it at the start must not become worse and
// worse.
func (in *instance) drift(x []float64) {
	first := relativeError(in.quantize(x).value, x)
	after := in
	for range keptSteps {
		after = after.advance(x)
	}
	if e := relativeError(after.quantize(x).value, x); !(e <= maxDrift*first+rowError) {
		in.t.failf(in.at(), "after %d steps with the same tensor the error is %.3g of its norm, at the start %.3g: the state drifts away", keptSteps, e, first)
	}
}

// changes fails unless steps with other tensors change a state tensor.
func (in *instance) changes(name string, x []float64) {
	after := in
	for i := range keptSteps {
		after = after.advance(in.other(i))
		if !slices.Equal(after.kept[name].Floats, in.kept[name].Floats) {
			return
		}
	}
	in.t.failf(in.at(), "%s is the same after %d steps with other tensors: nothing changes it", name, keptSteps)
}

func (in *instance) other(i int) []float64 {
	return scaled(1+float64(i%5)/2, normal(uint64(100+i), in.shape...))
}

// fromThenOn are the instance, and that after some steps with other tensors: what a state tensor is
// for may only show then.
func (in *instance) fromThenOn() []*instance {
	after := in
	for i := range 8 {
		after = after.advance(in.other(i))
	}
	return []*instance{in, after}
}

// isRead fails unless something in training depends on a state tensor: a result, or the next one of
// another.
func (in *instance) isRead(name string, x []float64) {
	for _, from := range in.fromThenOn() {
		for _, c := range []float64{2, 0.5, -1} {
			other := from.withKept(name, c)
			for i, p := range []func(*instance) map[string]reference.Tensor{
				func(in *instance) map[string]reference.Tensor { return in.run(in.Program, in.inputs(x)) },
				func(in *instance) map[string]reference.Tensor { return in.next(x) },
			} {
				got, want := p(other), p(from)
				for output := range want {
					if !(i == 1 && output == name) && !slices.Equal(got[output].Float64s(), want[output].Float64s()) {
						return
					}
				}
			}
		}
	}
	in.t.failf(in.at(), "nothing depends on %s", name)
}

// evaluatesWithState fails unless evaluation depends on the state: it is there that the state takes
// the place of what a batch says.
func (in *instance) evaluatesWithState(x []float64) {
	for _, from := range in.fromThenOn() {
		e := *from
		if in.evaluation != nil {
			e.siteAnswer = in.evaluation
		}
		base := e.quantize(x).value
		for _, s := range in.State {
			for _, c := range []float64{4, 0.125, -1} {
				if !slices.Equal(e.withKept(spec.KeptPrefix+s.Name, c).quantize(x).value, base) {
					return
				}
			}
		}
	}
	in.t.failf(in.at(), "evaluation does not depend on the state")
}

// withKept is the instance with a state tensor c·s + c/10 instead of s.
func (in *instance) withKept(name string, c float64) *instance {
	other := *in
	other.kept = map[string]reference.Tensor{}
	for k, v := range in.kept {
		if k == name {
			v = reference.Floats(mapped(v.Floats, func(s float64) float64 { return c*s + c/10 }), v.Type.Shape...)
		}
		other.kept[k] = v
	}
	return &other
}

// shapesFor compares activations of different numbers of rows in the shapes of what is kept.
func (q *quantizerRun) shapesFor(t *trial, what string, list func(*siteAnswer) []spec.Tensor) {
	for _, v := range q.space.core() {
		var first []spec.Tensor
		for i, rows := range []int{1, 7, 16} {
			s, err := q.ask(v, sdk.RoleActivation, rows, 64)
			if err != nil {
				break
			}
			if i == 0 {
				first = list(s)
			}
			if len(list(s)) > 0 || len(first) > 0 {
				t.announce()
			}
			if !reflect.DeepEqual(list(s), first) {
				t.failf(s.example, "the %s are %v, for one row %v", what, list(s), first)
			}
		}
	}
}
