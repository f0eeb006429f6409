package sdktest

import (
	"fmt"
	"maps"
	"math"
	"slices"

	"gonum.org/v1/gonum/floats"

	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/reference"
	"github.com/cage-qat/cage/sdk/program/transform"
	"github.com/cage-qat/cage/sdk/spec"
)

func (o *optimizerRun) table() []check {
	return []check{
		{"parameters", "every value in a declared range, alone and with others, gives valid programs " +
			"or a refusal that says what to do", o.checkParameters, ""},
		{"shapes", "valid programs for every shape of an accepted tensor", o.checkShapes, ""},
		{"parts", "weights that stack several matrices give valid programs and finite directions",
			o.checkParts, ""},
		{"selection", "some tensor is accepted; acceptance and programs depend on role and shape, " +
			"not on the name", o.checkSelection, ""},
		{"deterministic", "equal requests give equal programs, and equal inputs equal bits",
			o.everywhere(o.checkDeterministic), ""},
		{"zero gradient", "gradients of zeros from the start give finite directions and states",
			o.everywhere(o.checkZeroGradient), ""},
		{"decay", "without a gradient the direction is not proportional to x: the host decays weights",
			o.byDefault(o.checkDecay), "not applicable: own_decay is claimed"},
		{"correction", "bias correction counts updates from 1",
			o.byDefault(o.checkCorrection), "not applicable: no update reads the step"},
		{"finite", "gradients from 1e-12 to 1e6 give finite directions, states, rates, collected sums, " +
			"offsets and weights for evaluation", o.everywhere(o.checkFinite), ""},
		{"conditions", "a rate of 0, a loss of 0 and a run of one step give finite results; the " +
			"optimizer's own rate is not negative, and 0 where the schedule's is 0",
			o.everywhere(o.checkConditions), "not applicable: no program reads rate, steps or loss"},
		{"evaluation", "the weights for evaluation are x before the first update, and while x does " +
			"not change", o.everywhere(o.checkEvaluation),
			"not applicable: evaluation uses x itself (Averaged)"},
		{"state", "updates change every state tensor, unless it is computed from x, and directions " +
			"depend on it", o.checkState, "not applicable: there is no state"},
		{"retry", "an opaque update depends on its inputs alone, does not write to them, and gives " +
			"the same results when repeated or run concurrently", o.byDefault(o.checkRetry),
			"not applicable: updates are programs (OpaqueOptimizer)"},
		{"parabola", "x − α·u reduces an ill-conditioned quadratic loss, with some rate",
			o.checkDescent, "not tested: no tensor is accepted with the given settings"},
		{"devices", "compiled programs agree with the reference in every step", o.checkDevices, ""},
	}
}

func newOptimizerRun(subject OptimizerSubject, list []Option) *session {
	s, ok := newSession(sdk.KindOptimizer, subject.Describe, list)
	if ok {
		o := &optimizerRun{session: s, subject: subject, asked: map[string]*tensorAnswer{},
			diverging: map[string]bool{}}
		s.checks = append(s.checks, append(o.table(), s.goldenChecks(o.goldenCase)...)...)
	}
	return s
}

func (o *optimizerRun) checkParameters(t *trial) {
	for i, v := range slices.Concat(o.space.variants, o.space.random) {
		t.begin()
		list, err := o.accepted(v)
		switch {
		case len(list) > 0:
			// At the ends of a range an algorithm may legitimately diverge: the report notes such
			// settings, and other checks skip them. The defaults must not diverge.
			steps := &trial{}
			for _, size := range sizes {
				list[0].walk(steps, Reference{}, 3, size)
			}
			switch {
			case steps.check.Failed == 0:
			case i == 0:
				t.add(steps.check.Failures[0])
			default:
				t.notef("not finite with %s", settingsText(v.changed))
				o.diverging[settingsText(v.changed)] = true
			}
		case err != nil && i == 0:
			t.ok(example{settings: v.changed}, err)
		case err != nil:
			t.refuse(example{settings: v.changed}, err)
		}
	}
}

// walk makes updates with random gradients of the given size and checks that results are finite. It
// returns the last direction, or nil if a result is wrong.
func (s *tensorAnswer) walk(t *trial, m Machine, steps int, size float64) (u []float64) {
	t.begin()
	t.run(func() {
		r := s.train(t, m)
		for r.updates < steps {
			last := r.update(r.x, rounded(scaled(size, r.gradient(20))))
			if !r.checkFinite(last) {
				return
			}
			if r.updates == steps {
				u = last
			}
		}
	})
	return u
}

func (r *training) checkFinite(u []float64) bool {
	all := maps.Clone(r.state)
	maps.Copy(all, r.sums)
	all["direction"], all["rate"] = reference.Floats(u, r.shape...), reference.Float(r.rate)
	if r.offset != nil {
		all["offset"] = reference.Floats(r.offset, r.shape...)
	}
	if r.Evaluate != nil {
		w, err := r.evaluated(r.x)
		r.t.must(r.at(), err)
		all["evaluation"] = reference.Floats(w, r.shape...)
	}
	for name, v := range inOrder(all) {
		if !r.t.finite(r.at(), fmt.Sprintf("%s of update %d", name, r.updates), v.Type.Shape, v.Floats) {
			return false
		}
	}
	return true
}

func (o *optimizerRun) checkShapes(t *trial) {
	roles := []sdk.TensorRole{sdk.TensorMatrix, sdk.TensorVector, sdk.TensorEmbedding, sdk.TensorHead}
	for _, role := range roles {
		var shapes [][]int
		for _, d := range []int{1, 3, 32, 33, 64} {
			if role == sdk.TensorVector {
				shapes = append(shapes, []int{d}, []int{10 * d})
			} else {
				shapes = append(shapes, []int{1, d}, []int{7, d}, []int{d, 7})
			}
		}
		for _, shape := range shapes {
			s, err := o.ask(o.space.variants[0], role, shape...)
			switch {
			case err != nil && len(s.settings) > 0: // the caller's need not support every shape
				t.refuse(s.example, err)
			case err != nil:
				t.ok(s.example, err)
			case s.Accepts:
				s.walk(t, Reference{}, 2, 1)
			}
		}
	}
}

// checkParts requests programs for fused QKV weights of multi-head and grouped-query attention.
func (o *optimizerRun) checkParts(t *trial) {
	for _, v := range o.space.core() {
		for _, rows := range [][3]int{{4, 4, 4}, {8, 2, 2}} {
			plain, err := o.ask(v, sdk.TensorMatrix, 12, 6)
			if err != nil || o.diverging[settingsText(v.changed)] {
				continue // the checks of unfused matrices report this
			}
			tensor := plain.tensor
			tensor.Parts = []sdk.Part{{Name: "q", Rows: rows[0]}, {Name: "k", First: rows[0], Rows: rows[1]},
				{Name: "v", First: rows[0] + rows[1], Rows: rows[2]}}
			tensor.Name = "layers.0.qkv"
			s := o.answer(v, tensor)
			switch err := fmt.Errorf("with parts of %v rows: %w", rows, s.err); {
			case s.err != nil && len(s.settings) > 0: // the caller's need not support every weight
				t.refuse(s.example, err)
			case s.err != nil:
				t.ok(s.example, err)
			case s.Accepts != plain.Accepts:
				t.failf(s.example, "accepted: %v with parts of %v rows, %v as one matrix",
					s.Accepts, rows, plain.Accepts)
			case s.Accepts:
				s.walk(t, Reference{}, 2, 1)
			}
		}
	}
}

// checkSelection requests programs for tensors that differ only in their names.
func (o *optimizerRun) checkSelection(t *trial) {
	accepted, v := 0, o.space.variants[0]
	for _, k := range tensorKinds {
		t.begin()
		var first *tensorAnswer
		for _, name := range []string{"layers.0.wq", "layers.11.mlp.down", "x"} {
			s := o.answer(v, sdk.Tensor{Name: name, Role: k.role, Shape: k.shape})
			t.must(s.example, s.err)
			if first == nil {
				if first = s; s.Accepts {
					accepted++
				}
			}
			if s.Accepts != first.Accepts {
				t.failf(s.example, "accepted under one name and declined under another")
			} else if s.Accepts && !v.claims(sdk.ClaimByName) && !maps.Equal(s.unnamed(), first.unnamed()) {
				t.failf(s.example, "%s and %s have different programs; if this is intended, %s",
					name, first.tensor.Name, claim(sdk.ClaimByName))
			}
		}
	}
	if accepted == 0 {
		t.failf(example{}, "no tensor of any role is accepted")
	}
	t.notef("%d of %d kinds of tensors accepted", accepted, len(tensorKinds))
}

func (s *tensorAnswer) unnamed() map[string]string {
	hashes := map[string]string{}
	for which, p := range s.Programs() {
		other := *p
		other.Name = which
		hashes[which] = other.Hash()
	}
	return hashes
}

func (o *optimizerRun) checkDeterministic(t *trial, s *tensorAnswer, m Machine) {
	t.begin()
	again := o.answer(s.variant, s.tensor)
	same := again.err == nil && maps.Equal(again.unnamed(), s.unnamed()) && again.Due == s.Due
	if t.ok(s.example, again.err) && !same {
		t.failf(s.example, "a second request gives other programs, or refreshes at other steps")
	}
	first, second := s.walk(t, m, 3, 1), s.walk(t, m, 3, 1)
	t.equal(s.on(m), "direction of a second run", s.shape, second, first)
}

func (o *optimizerRun) checkZeroGradient(t *trial, s *tensorAnswer, m Machine) {
	zeros := make([]float64, s.size())
	r := s.train(t, m)
	for range min(max(3, s.Due.Next+1), 12) {
		u := r.update(r.x, zeros)
		if !r.checkFinite(u) {
			return
		}
		if s.variant.claims(sdk.ClaimStill) {
			what := fmt.Sprintf("direction of update %d with a gradient of zero, "+
				"where the plugin claims still,", r.updates)
			t.equal(r.at(), what, s.shape, u, zeros)
		} else if largest(u) > 0 {
			t.notef("the direction is not always zero")
		}
	}
}

// sizes are root mean squares of gradients, from far below to far above those in training.
var sizes = []float64{1e-12, 1e-3, 1, 1e6}

func (o *optimizerRun) checkFinite(t *trial, s *tensorAnswer, m Machine) {
	for _, size := range sizes {
		s.walk(t, m, min(max(4, s.Due.First+2), 24), size) // includes the first refresh
	}
}

func (o *optimizerRun) checkConditions(t *trial, s *tensorAnswer, m Machine) {
	inputs := []string{spec.InputRate, spec.InputSteps, spec.InputLoss}
	if s.Rate == nil && !slices.ContainsFunc(inputs, s.HasInput) {
		return
	}
	for _, c := range []conditions{s.ordinary(), {0, 100, 2}, {0.01, 100, 0}, {0.01, 1, 2}} {
		r := s.train(t, m)
		for i := range 6 {
			if r.conditions = c; i%2 == 1 {
				r.conditions = s.ordinary() // later updates use the state that these conditions left
			}
			if !r.checkFinite(r.next(20)) {
				return
			}
			if s.Rate != nil && (r.rate < 0 || r.schedule == 0 && r.rate != 0) {
				t.failf(r.at(), "the optimizer's own rate of update %d is %v, where the schedule's is %v: "+
					"multiply by the input rate", r.updates, r.rate, r.schedule)
				return
			}
		}
	}
}

func (o *optimizerRun) checkEvaluation(t *trial, s *tensorAnswer, m Machine) {
	if s.Evaluate == nil {
		return
	}
	r := s.train(t, m)
	r.schedule = 0 // so that x does not change
	for range 5 {
		w, err := r.evaluated(r.x)
		t.must(r.at(), err)
		what := fmt.Sprintf("evaluated weights after %d updates with a rate of 0", r.updates)
		t.within(r.at(), what, r.shape, w, r.x, upTo(1e-5*largest(r.x)))
		r.update(r.x, make([]float64, s.size()))
	}
}

// checkCorrection makes updates with a constant gradient. Bias-corrected moving averages that start
// at zero then give a constant direction from the first update on. If directions are constant only
// when steps are counted from another number, the bias correction is off by that many updates.
func (o *optimizerRun) checkCorrection(t *trial, s *tensorAnswer) {
	if !s.Opaque { // an opaque optimizer may read the step
		if i := s.Update.Input(spec.InputStep); i < 0 || !transform.Needs(s.Update, s.Update.Outputs)[i] {
			return
		}
	}
	t.begin()
	if s.steady(t, 0) {
		return
	}
	for _, shift := range []int{-1, 1} {
		if s.steady(t, shift) {
			t.failf(s.example, "with equal gradients the directions would be equal if the first update "+
				"were number %d: the step, and with it the bias correction β^t, counts from 1", 1+shift)
			return
		}
	}
	t.notef("with equal gradients the directions are not equal")
}

// steady reports whether updates with a constant gradient have a constant direction if steps are
// counted from 1 + shift.
func (s *tensorAnswer) steady(t *trial, shift int) bool {
	r := s.train(t, Reference{})
	r.exact, r.stepShift = true, shift
	g := normal(41, s.shape...)
	var first []float64
	for range 6 {
		u, err := r.step(r.x, g)
		if err != nil {
			return false // a factorization of a matrix that does not occur in training
		}
		if first == nil {
			first = u
		}
		for i, v := range u {
			if !(math.Abs(v-first[i]) <= 1e-6*largest(first)) {
				return false
			}
		}
	}
	return largest(first) > 0
}

// checkDecay detects directions that are proportional to x at a zero gradient. Factors below 1e-6
// are ignored: at a rate of 1 they need 10⁵ updates to remove a tenth of x. They come from the
// epsilon of a denominator, or the initial value of an estimated rate.
func (o *optimizerRun) checkDecay(t *trial, s *tensorAnswer) {
	if s.variant.claims(sdk.ClaimOwnDecay) {
		return
	}
	t.begin()
	r := s.train(t, Reference{})
	for range 3 {
		u := r.update(r.x, make([]float64, s.size()))
		factor := u[0] / r.x[0]
		size := math.Abs(factor)
		other := func(d float64) bool { return !(math.Abs(d) <= 1e-6*size*largest(r.x)) }
		if !(size >= 1e-6 && size < math.Inf(1)) || slices.ContainsFunc(axpy(u, -factor, r.x), other) {
			continue
		}
		message := fmt.Sprintf("without a gradient, the direction of update %d is %.3g·x, but the "+
			"host does weight decay; if this is intended, %s", r.updates, factor, claim(sdk.ClaimOwnDecay))
		if len(s.settings) == 0 {
			t.failf(s.example, "%s", message)
		} else {
			t.notef("%s", message)
		}
		return
	}
}

// maxUpdates limits the updates of an example, because refreshes may begin very late.
const maxUpdates = 400

// horizon returns the number of updates within which every part of the state must have an effect.
// It includes refreshes, if they are due within [maxUpdates].
func (s *tensorAnswer) horizon() int {
	h := max(6, s.Due.First+s.Due.Next+2*s.Due.Every+2, s.ProbeDue.First+2)
	if s.Rate != nil {
		h = max(h, 24) // estimates of the rate take longer
	}
	return min(h, maxUpdates)
}

// checkState checks one state tensor at a time: with the default settings all of them, with other
// settings those that do not exist with the defaults.
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
				t.begin()
				t.run(func() { s.checkChanges(t, spec.StatePrefix+tensor.Name) })
				t.run(func() { s.checkEffect(t, spec.StatePrefix+tensor.Name) })
			}
		}
	}
}

// checkChanges fails unless updates change the named state tensor or its initial value reads x.
func (s *tensorAnswer) checkChanges(t *trial, name string) {
	if !s.Opaque {
		if out, _ := s.Init.Output(name); transform.Needs(s.Init, []program.Output{{Value: out}})[0] {
			return
		}
	}
	r := s.train(t, Reference{})
	initial := r.state[name].Floats
	for range s.horizon() {
		r.next(30)
		if !slices.Equal(initial, r.state[name].Floats) {
			return
		}
	}
	s.unaffected(t, "%s still has its initial value after %d updates", name, s.horizon())
}

// unaffected fails the example, unless refreshes begin too late to be tested.
func (s *tensorAnswer) unaffected(t *trial, format string, args ...any) {
	if first := s.Due.First; first > maxUpdates {
		t.notef("%s; the first refresh, at update %d, is not tested", fmt.Sprintf(format, args...), first)
		return
	}
	t.failf(s.example, format, args...)
}

// checkEffect fails unless a change of the named state tensor affects a later direction. The tensor
// is changed in one of the first updates or after the first refresh: before an update begins, or,
// if each observation or each refresh overwrites it, before the stage that follows. Directions may
// be clipped for large gradients, or not depend on all of the state at small rates.
func (s *tensorAnswer) checkEffect(t *trial, name string) {
	first := min(s.Due.First, maxUpdates)
	for _, at := range []stage{stageBegin, stageRefresh, stageUpdate} {
		for _, try := range []struct {
			after            int
			gradients, rates float64
		}{{1, 1, 1}, {2, 1, 1}, {first, 1, 1}, {first + 1, 1, 1}, {1, 1e-3, 1}, {2, 1e-3, 1},
			{2, 1, 100}, {2, 1e-3, 100}} {
			r := s.train(t, Reference{})
			r.gradients, r.schedule = try.gradients, try.rates*r.schedule
			for range try.after {
				r.next(30)
			}
			fork := *r
			fork.state = maps.Clone(r.state)
			other := &fork
			other.before = func(reached stage) {
				if reached == at {
					other.before = nil
					other.alter(name)
				}
			}
			if r.differs(other, 40) {
				return
			}
		}
	}
	s.unaffected(t, "%s has no effect on the next %d directions", name, s.horizon())
}

// differs continues both training runs with the same gradients and reports whether, within the
// horizon, other has a different direction, rate or result, or an error. An error counts because a
// state that does not occur in training can break a factorization.
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

func (o *optimizerRun) checkDevices(t *trial) {
	if len(o.machines) == 1 {
		t.skipf(noDevice)
		return
	}
	o.on(o.machines[:1], func(_ *trial, s *tensorAnswer, _ Machine) {
		r := s.untrained(t, Reference{}, normal(11, s.shape...))
		r.trace = func(what string, p *program.Program, inputs tensors) {
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

// parabola returns ½·Σ a·(x − c)², with a from 0.1 to 10, and its gradient at x.
func parabola(x []float64) (value float64, gradient []float64) {
	n := len(x)
	c, gradient := normal(90, n), make([]float64, n)
	for i, v := range x {
		a := math.Pow(10, 2*float64(i)/float64(max(n-1, 1))-1)
		value += 0.5 * a * (v - c[i]) * (v - c[i])
		gradient[i] = a * (v - c[i])
	}
	return value, gradient
}

// descent runs an optimizer from x = 0 and returns the final value of the parabola as a fraction of
// the initial one. The rate falls linearly to zero. The final value is that of the evaluated
// weights.
func (s *tensorAnswer) descent(t *trial, steps int, rate float64) float64 {
	x := make([]float64, s.size())
	first, g := parabola(x)
	value, r := first, s.untrained(t, Reference{}, x)
	t.must(r.at(), r.init())
	r.conditions.steps = float64(steps)
	r.slope = func(x []float64) []float64 {
		_, g := parabola(x)
		return g
	}
	for i := range steps {
		if floats.HasNaN(g) || value > 1e6*first {
			return math.Inf(1) // the rate is too large
		}
		r.schedule, r.loss = rate*(1-float64(i)/float64(steps)), value
		u := r.update(x, g)
		x = axpy(x, -r.rate, u)
		value, g = parabola(x)
	}
	result, err := r.evaluated(x)
	t.must(s.example, err)
	value, _ = parabola(result)
	return value / first
}

// checkDescent checks, for every accepted kind of tensor with the default settings, that with some
// rate the loss reaches the goal, a fraction of its initial value.
func (o *optimizerRun) checkDescent(t *trial) {
	const steps = 300
	v, goal := o.space.variants[0], 0.05
	if v.claims(sdk.ClaimNoDescent) {
		t.skipf("not applicable: no_descent is claimed")
		return
	}
	wanted := "; if the loss need not decrease, " + claim(sdk.ClaimNoDescent)
	part, claimed := v.about.Claimed(sdk.ClaimDescent, v.values)
	if claimed {
		goal, wanted = part.(float64), ", as descent claims"
	}
	o.byDefault(func(_ *trial, s *tensorAnswer) {
		t.begin()
		best, bestRate := math.Inf(1), 0.0
		for _, rate := range []float64{0.1, 0.03, 0.01, 0.3, 0.003, 0.001, 1, 3e-4, 1e-4} {
			if got := s.descent(t, steps, rate); got < best {
				best, bestRate = got, rate
			}
			if best <= goal {
				break
			}
		}
		if !(best <= goal) && (claimed || len(s.settings) == 0) { // the caller's may need other rates
			t.failf(s.example, "after %d steps the loss is at best %.3g of its initial value, with "+
				"rate %v; want %v%s", steps, best, bestRate, goal, wanted)
		}
		t.notef("%.2g of the initial loss after %d steps with rate %v", best, steps, bestRate)
	})(t)
}
