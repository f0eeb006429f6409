package sdktest

import (
	"cmp"
	"maps"
	"math"
	"reflect"
	"slices"

	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/reference"
	"github.com/cage-qat/cage/sdk/program/transform"
	"github.com/cage-qat/cage/sdk/spec"
)

// This file checks trained parameters and state. Initial values may be computed from column
// statistics: of the tensor with which the site is initialized, and of the other operand of the
// product, a random matrix; an activation has outliers in some columns, as in language models.

func otherRole(role sdk.Role) sdk.Role {
	if role == sdk.RoleActivation {
		return sdk.RoleWeight
	}
	return sdk.RoleActivation
}

func operand(role sdk.Role, d int) []float64 {
	const rows, every, factor = 24, 16, 20
	x := normal(31, rows, d)
	for i := range x {
		if role == sdk.RoleActivation && i%d%every == every/2 {
			x[i] *= factor
		}
	}
	return x
}

// statistics returns the column statistics of both operands, by input name.
func (s *siteAnswer) statistics(own, other []float64) map[string][]float64 {
	out, d := map[string][]float64{}, s.shape[len(s.shape)-1]
	for role, x := range map[sdk.Role][]float64{s.site.Role: own, otherRole(s.site.Role): other} {
		most, mean := make([]float64, d), make([]float64, d)
		for i, v := range x {
			most[i%d] = max(most[i%d], math.Abs(v))
			mean[i%d] += math.Abs(v) / float64(len(x)/d)
		}
		if role == sdk.RoleActivation {
			out[spec.InputActivationsMax], out[spec.InputActivationsMean] = rounded(most), rounded(mean)
		} else {
			out[spec.InputWeightsMax], out[spec.InputWeightsMean] = rounded(most), rounded(mean)
		}
	}
	return out
}

func (s *siteAnswer) initialInputs(p *program.Program, sample []float64,
	statistics map[string][]float64) tensors {
	inputs := tensors{spec.InputX: reference.Floats(sample, s.shape...)}
	for _, in := range p.Inputs[1:] {
		inputs[in.Name] = reference.Floats(statistics[in.Name], in.Type.Shape...)
	}
	return inputs
}

// checkInitial initializes from ordinary and unusual tensors, with ordinary and unusual values of
// the other operands, then quantizes and takes a step. Shapes must not depend on the number of
// rows.
func (q *quantizerRun) checkInitial(t *trial) {
	q.everywhere(func(_ *trial, in *instance, x []float64) {
		if !in.hasMemory() || in.evaluates {
			return
		}
		d := in.shape[1]
		other := operand(otherRole(in.site.Role), d)
		others := [][]float64{other}
		if in.Calibrated() {
			others = append(others, otherColumn(other, d, 0), make([]float64, len(other)),
				scaled(0x1p20, other), scaled(0x1p-30, other), otherColumn(other, d, 0x1p30))
		}
		for i, other := range others {
			samples := [][]float64{x, otherColumn(x, d, 0)}
			if i == 0 {
				samples = append(samples, scaled(0x1p20, x), scaled(0x1p-30, x), full(0, len(x)),
					full(-2.5, len(x)))
			}
			for _, sample := range samples {
				t.run(func() {
					from := in.startFrom(t, in.m, sample, in.statistics(sample, other))
					for name, v := range inOrder(from.memory) {
						t.finite(in.at(), "initial "+name, v.Type.Shape, v.Floats)
					}
					in.finite(sample, "value with the initial values", from.quantize(sample).value)
					if len(in.State) > 0 {
						from.advance(sample)
					}
				})
			}
		}
	})(t)
	for _, v := range q.space.core() {
		var first *siteAnswer
		for _, rows := range []int{1, 7, 16} {
			s, err := q.ask(v, sdk.RoleActivation, rows, 64)
			if err != nil || !s.hasMemory() {
				break
			}
			first = cmp.Or(first, s)
			t.begin()
			if !reflect.DeepEqual(s.Trained, first.Trained) || !reflect.DeepEqual(s.State, first.State) {
				t.failf(s.example, "the trained parameters are %v and the state %v, but for one row %v and %v",
					s.Trained, s.State, first.Trained, first.State)
			}
		}
	}
}

func otherColumn(x []float64, d int, c float64) []float64 {
	x = slices.Clone(x)
	for i := d / 2; i < len(x); i += d {
		x[i] *= c
	}
	return x
}

// checkConstraints applies the constraints of trained parameters to their initial values, and twice
// to other values. A value in the feasible set may move slightly, as for iterative projections.
func (q *quantizerRun) checkConstraints(t *trial, in *instance, x []float64) {
	for i, p := range in.Trained {
		if p.Constrain == nil {
			continue
		}
		name := spec.TrainedPrefix + p.Name
		constrain := func(v []float64) []float64 {
			given := tensors{name: reference.Floats(v, p.Shape...)}
			v = in.run(p.Constrain, given)[name].Floats
			t.finite(in.at(), "constrained "+p.Name, p.Shape, v)
			return v
		}
		t.run(func() {
			start := in.memory[name].Floats
			unmoved := func(what string, v []float64) {
				t.within(in.at(), what, p.Shape, constrain(v), v, upTo(1e-4*largest(v)))
			}
			unmoved("constrained initial "+p.Name, start)
			moved := axpy(start, 0.3*max(largest(start), 1e-3), normal(uint64(41+i), len(start)))
			unmoved(p.Name+", constrained twice,", constrain(moved))
		})
	}
}

// stateSteps is the number of steps for which a quantizer's state is followed.
const stateSteps = 64

func (q *quantizerRun) checkState(t *trial, in *instance, x []float64) {
	if len(in.State) == 0 || in.evaluates {
		return
	}
	// Levels that are good for a tensor initially must not become steadily worse.
	t.run(func() {
		t.begin()
		first := relativeError(in.quantize(x).value, x)
		after := in
		for range stateSteps {
			after = after.advance(x)
		}
		if e := relativeError(after.quantize(x).value, x); !(e <= 3*first+rowError) {
			t.failf(in.at(), "after %d steps with the same tensor the error is %.3g of its norm, "+
				"and initially %.3g: the state drifts", stateSteps, e, first)
		}
	})
	if len(x) < enoughEntries {
		return
	}
	var names []string
	for _, s := range in.State {
		name := spec.KeptPrefix + s.Name
		names = append(names, name)
		t.run(func() { in.changes(name) })
		if !in.dependsOn([]string{name}, func(in *instance) tensors {
			out := in.next(x)
			maps.Copy(out, in.run(in.Program, in.inputs(in.Program, x)))
			if in.Backward != nil {
				maps.Copy(out, in.gradient(x, normal(5, in.shape...)))
			}
			return out
		}) {
			t.failf(in.at(), "nothing depends on %s", name)
		}
	}
	// In evaluation, state replaces the statistics of a batch. State that affects only gradients
	// need not.
	value := func(in *instance) tensors {
		return tensors{spec.OutputValue: in.quantize(x).outputs[spec.OutputValue]}
	}
	if in.variant.claims(sdk.ClaimTrainingState) || !in.dependsOn(names, value) {
		return
	}
	if !in.dependsOn(names, func(in *instance) tensors {
		e := *in
		if in.evaluation != nil {
			e.siteAnswer = in.evaluation
		}
		return value(&e)
	}) {
		t.failf(in.at(), "evaluation does not depend on the state, but training does; if this is "+
			"intended, %s", claim(sdk.ClaimTrainingState))
	}
}

func (in *instance) advance(x []float64) *instance {
	other := in.atStep(in.step + 1)
	other.memory = maps.Clone(in.memory)
	for name, v := range inOrder(other.next(x)) {
		in.t.finite(in.at(), "next "+name, v.Type.Shape, v.Floats)
		other.memory[name] = v
	}
	return other
}

// next returns the state after a step with x, computed by Next or by a search.
func (in *instance) next(x []float64) tensors {
	if in.SearchEvery == 0 {
		return inSingle(in.run(in.Next, in.inputs(in.Next, x)))
	}
	s := in.searchInput(x)
	in.t.must(in.at(), in.subject.Search(in.site, s))
	found := tensors{}
	for _, t := range in.State {
		found[spec.KeptPrefix+t.Name] = reference.Floats(converted[float64](s.Next[t.Name]), t.Shape...)
	}
	return found
}

// changes fails unless steps with other tensors change a state tensor, or it is calibrated once:
// its initial value is computed from x or column statistics, and Next returns it as it is.
func (in *instance) changes(name string) {
	if in.Next != nil {
		id, _ := in.Next.Output(name)
		from, _ := in.InitState.Output(name)
		needed := transform.Needs(in.InitState, []program.Output{{Value: from}})
		if int(id) == in.Next.Input(name) && slices.Contains(needed[:len(in.InitState.Inputs)], true) {
			in.t.notef("%s keeps its initial value", name)
			return
		}
	}
	after := in
	for i := range stateSteps {
		after = after.advance(in.other(i))
		if !slices.Equal(after.memory[name].Floats, in.memory[name].Floats) {
			return
		}
	}
	in.t.failf(in.at(), "%d steps with other tensors do not change %s; if it is calibrated once, "+
		"compute it from x and return it as it is in Next", stateSteps, name)
}

func (in *instance) other(i int) []float64 {
	return scaled(1+float64(i%5)/2, normal(uint64(100+i), in.shape...))
}

// dependsOn reports whether results, except the next value of the tensor itself, depend on one of
// the named state tensors, either initially or after some steps with other tensors.
func (in *instance) dependsOn(names []string, results func(*instance) tensors) bool {
	after := in
	for i := range 8 {
		after = after.advance(in.other(i))
	}
	for _, from := range []*instance{in, after} {
		base := results(from)
		for _, name := range names {
			for _, c := range []float64{2, 0.5, 4, 0.125, -1} {
				other := *from
				other.memory = maps.Clone(from.memory)
				v := from.memory[name]
				other.memory[name] = reference.Floats(mapped(v.Floats,
					func(s float64) float64 { return c*s + c/10 }), v.Type.Shape...)
				for output, v := range results(&other) {
					if output != name && !slices.Equal(v.Float64s(), base[output].Float64s()) {
						return true
					}
				}
			}
		}
	}
	return false
}
