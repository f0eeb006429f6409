package sdktest

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"

	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/client"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/autodiff"
	"github.com/cage-qat/cage/sdk/program/reference"
	"github.com/cage-qat/cage/sdk/spec"
)

func (q *quantizerRun) table() []check {
	const noMemory = "not applicable: no trained parameters (Trainable) and no state (Stateful)"
	return []check{
		{"parameters", "every value in a declared range, alone and with others, gives valid programs " +
			"or a refusal that says what to do", q.checkParameters, ""},
		{"shapes", "weights and activations of every shape and in every block of a model give valid " +
			"programs; by default, rows of a length that 32 divides are not refused; gradients may be",
			q.checkShapes, ""},
		{"deterministic", "equal requests give equal programs, and equal inputs equal bits",
			q.checkDeterministic, ""},
		{"zeros", "zeros stay zeros, with mask 1 and code 0 (any_zero_code: one code), or become a " +
			"level near zero; rows of equal or subnormal numbers give finite values",
			q.everywhere(q.checkZeros), ""},
		{"non-finite", "NaN and ±Inf make NaN of exactly the values that share their scale, with " +
			"code 0, mask 0 and a finite gradient; with prunes, zeros may stay",
			q.everywhere(q.checkNonFinite), ""},
		{"rows", "a row has the same result alone and in a matrix, unless the whole tensor shares " +
			"a scale", q.onReference(q.checkRows),
			"not applicable: rows share a scale, parameters or state"},
		{"scale scope", "scales are shared as claimed; without a claim, by a row or a part of it, or " +
			"by a whole weight; a declared Grid gives the part",
			q.checkScope, "not applicable: no scale depends on the data"},
		{"nearest", "where levels can be observed, values are rounded to the nearest, and the levels " +
			"reach as far as their scale", q.onReference(q.checkNearest),
			"not testable: entries are mixed, as by a rotation, so that levels cannot be observed; " +
				"test the rounding with golden values"},
		{"error", "the error is plausible: no row much worse than others, no bias, no shrinking",
			q.checkError, ""},
		{"noise", "if unbiased is claimed, the mean over the noise is x", q.checkNoise, ""},
		{"fixed points", "if idempotent is claimed, values on the grid do not change",
			q.onReference(q.checkFixed), "optional: idempotent is not claimed"},
		{"homogeneous", "if Homogeneous is set, Q(c·x) = c·Q(x)", q.onReference(q.checkHomogeneous),
			"optional: Homogeneous is not set"},
		{"gradient", "gradients by x and by trained parameters are those of the surrogate",
			q.onReference(q.checkGradient), "not applicable: the backward pass is custom (Differentiator)"},
		{"own backward pass", "gradients of a custom backward pass are finite, zero where dy is zero, " +
			"and in each row independent of other rows", q.everywhere(q.checkOwnBackward),
			"not applicable: there is no custom backward pass (Differentiator)"},
		{"gradient size", "the gradient passes where the mask says so, with factor 1",
			q.checkGradientSize, "not applicable: any_gradient is claimed"},
		{"mask", "a mask that stops some gradients does not pass those of clipped entries, unless " +
			"any_mask is claimed",
			q.checkMask, "not applicable: by default there is no Mask that stops gradients"},
		{"codes", "codes are integers and, with a Grid, codes of it; values are their numbers times " +
			"the scales, and equal the unpacked codes bit for bit", q.everywhere(q.checkCodes),
			"optional: there are no Codes; exports store weights as floats"},
		{"count of codes", "a parameter bits allows at most 2^bits codes",
			q.checkCount, "optional: there are no Codes"},
		{"initial values", "any finite tensor gives finite trained parameters and state, whose shapes " +
			"do not depend on the rows of an activation", q.checkInitial, noMemory},
		{"constraints", "initial values are in the constraint set, and values in it do not change",
			q.everywhere(q.checkConstraints), "not applicable: no parameter is constrained (Constrained)"},
		{"state", "state stays finite; steps change it, or it is computed from x and Next returns it " +
			"as it is; training depends on it, and evaluation if the value in training does, unless " +
			"training_state is claimed; it stays good for a tensor that repeats",
			q.onReference(q.checkState),
			"not applicable: there is no state (Stateful)"},
		{"search", "a search depends on its inputs alone, does not write to them, and writes all " +
			"state, the same when repeated or run concurrently", q.onReference(q.checkSearch),
			"not applicable: there is no search (Searcher)"},
		{"learning", "away from their initial values, gradients lead trained parameters to a smaller " +
			"error", q.onReference(q.checkLearning), "not applicable: no trained parameters (Trainable)"},
		{"devices", "compiled programs agree with the reference: outputs, gradients, initial values, " +
			"next states", q.checkDevices, ""},
	}
}

func newQuantizerRun(subject QuantizerSubject, list []Option) *session {
	s, ok := newSession(sdk.KindQuantizer, subject.Describe, list)
	if ok {
		q := &quantizerRun{session: s, subject: subject, asked: map[string]*siteAnswer{}}
		s.checks = append(s.checks, append(q.table(), s.goldenChecks(q.goldenCase)...)...)
	}
	return s
}

type quantizerRun struct {
	*session
	subject  QuantizerSubject
	asked    map[string]*siteAnswer
	allRoles []sdk.Role // see roles
}

type siteAnswer struct {
	spec.Quantizer
	example
	err     error
	variant variant
	site    sdk.Site
	subject QuantizerSubject
	vjp     *program.Program // the backward pass, made when needed
	// evaluation is the answer with the evaluation program instead of the training program. It is
	// nil if they are equal, and in the evaluation answer itself, which has evaluates set.
	evaluation *siteAnswer
	evaluates  bool
	hashes     map[string]string // of the programs, made when needed
	influences influences        // results of [instance.influence]
}

func (q *quantizerRun) ask(v variant, role sdk.Role, shape ...int) (*siteAnswer, error) {
	key := fmt.Sprint(role, shape, settingsText(v.changed))
	if q.asked[key] == nil {
		q.asked[key] = q.answer(v, siteOf(role, shape, 0, 2), string(role))
	}
	if q.asked[key].err == nil {
		q.answered++
	}
	return q.asked[key], q.asked[key].err
}

// answer requests the programs of a site, which reports refer to as name.
func (q *quantizerRun) answer(v variant, site sdk.Site, name string) *siteAnswer {
	site.Values = v.values
	s := &siteAnswer{variant: v, site: site, subject: q.subject,
		example: example{role: name, shape: slices.Clone(site.Shape), settings: v.changed}}
	if s.Quantizer, s.err = q.subject.Programs(site); s.err == nil {
		s.err = s.Check(site.Shape)
	}
	if s.err == nil && s.Evaluate != nil {
		e := *s
		e.Quantizer, e.evaluates, e.role = s.ForEvaluation(), true, "evaluation of "+e.role
		s.evaluation = &e
	}
	return s
}

// siteOf returns a site in the given block of a model, or in no block if layer is -1.
func siteOf(role sdk.Role, shape []int, layer, layers int) sdk.Site {
	name := "embedding"
	if layer >= 0 {
		name = fmt.Sprintf("layers.%d.wq", layer)
	}
	s := sdk.Site{Role: role, Name: name, Layer: layer, Layers: layers, Shape: slices.Clone(shape)}
	if role != sdk.RoleWeight && len(shape) > 0 {
		s.Context = shape[0] // a single sequence
	}
	if ofAttention(role) {
		s.Name, s.Heads = fmt.Sprintf("layers.%d.attn.%ss", layer, role), 1
		if s.RowLen()%32 == 0 {
			s.Heads = s.RowLen() / 32
		}
	}
	return s
}

// matrixShapes are the shapes of most checks: rows of odd length, which are not rotated, and usual
// ones.
var matrixShapes = [][]int{{4, 33}, {3, 128}}

// edgeShapes are additional shapes for the first variant: one element, single rows, and rows
// slightly shorter or longer than a block.
var edgeShapes = [][]int{{1, 1}, {4, 1}, {4, 3}, {4, 31}, {1, 32}, {4, 32}, {1, 33}}

// roles returns the roles to test: weight and activation, and key and value if the plugin has other
// programs for them than for activations. Queries are treated like keys. A plugin may be too old to
// support these roles.
func (q *quantizerRun) roles() []sdk.Role {
	if q.allRoles == nil {
		q.allRoles = []sdk.Role{sdk.RoleWeight, sdk.RoleActivation}
		v := q.space.variants[0]
		activation, noActivation := q.ask(v, sdk.RoleActivation, 4, 128)
		for _, role := range []sdk.Role{sdk.RoleKey, sdk.RoleValue} {
			s, err := q.ask(v, role, 4, 128)
			same := err == nil && noActivation == nil && s.samePrograms(activation)
			if !same && !isRefusal(err) && !errors.Is(err, client.ErrVersion) {
				q.allRoles = append(q.allRoles, role)
			}
		}
	}
	return q.allRoles
}

func (s *siteAnswer) samePrograms(other *siteAnswer) bool {
	for _, s := range []*siteAnswer{s, other} {
		if s.hashes == nil {
			s.hashes = spec.Hashes(s.Programs())
		}
	}
	return maps.Equal(s.hashes, other.hashes)
}

func ofAttention(role sdk.Role) bool {
	return role == sdk.RoleKey || role == sdk.RoleValue || role == sdk.RoleQuery
}

// sites returns the answers for a variant and shape: for a weight, and for each other role whose
// programs differ; in training, and in evaluation if its program differs.
func (q *quantizerRun) sites(v variant, shape ...int) []*siteAnswer {
	var list []*siteAnswer
	for _, role := range q.roles() {
		s, err := q.ask(v, role, shape...)
		if err != nil || len(list) > 0 && s.samePrograms(list[0]) {
			continue
		}
		if list = append(list, s); s.evaluation != nil {
			list = append(list, s.evaluation)
		}
	}
	return list
}

// anyRounding reports whether values may be rounded to levels other than the nearest: if noise is
// used, or if the plugin claims so. A quantizer with that claim and a separate evaluation program
// rounds to nearest in evaluation.
func (q *quantizerRun) anyRounding(s *siteAnswer) bool {
	return !s.evaluates && (s.variant.claims(sdk.ClaimAnyRounding) || s.Draws())
}

// quantizerCheck checks a site on a machine, with a matrix of normal random numbers.
type quantizerCheck func(t *trial, in *instance, x []float64)

// on returns a check that calls f for every variant and matrix shape that the plugin supports, on
// each machine. Answers that are errors are left to other checks.
func (q *quantizerRun) on(machines []Machine, f quantizerCheck) func(*trial) {
	return func(t *trial) {
		for k, v := range q.space.core() {
			shapes := matrixShapes
			if k == 0 {
				shapes = slices.Concat(matrixShapes, edgeShapes)
			}
			for i, shape := range shapes {
				x := normal(uint64(i), shape...)
				for _, s := range q.sites(v, shape...) {
					for _, m := range machines {
						t.run(func() { f(t, s.instance(t, m, x), x) })
					}
				}
			}
		}
	}
}

func (q *quantizerRun) everywhere(f quantizerCheck) func(*trial) { return q.on(q.machines, f) }

func (q *quantizerRun) onReference(f quantizerCheck) func(*trial) {
	return q.on([]Machine{Reference{}}, f)
}

func (s *siteAnswer) reverse() (_ *program.Program, err error) {
	if s.vjp == nil {
		s.vjp, err = s.Reverse()
	}
	return s.vjp, err
}

// instance is a site on a machine at a training step, with trained parameters and state. An error
// in a run fails the trial and ends the example.
type instance struct {
	*siteAnswer
	t      *trial
	m      Machine
	memory tensors // trained parameters and state, by input name
	step   int     // index of the step, from 0, which also determines the keys of random bits
}

func (s *siteAnswer) instance(t *trial, m Machine, sample []float64) *instance {
	other := operand(otherRole(s.site.Role), s.shape[len(s.shape)-1])
	return s.startFrom(t, m, sample, s.statistics(sample, other))
}

func (s *siteAnswer) startFrom(t *trial, m Machine, sample []float64,
	statistics map[string][]float64) *instance {
	in := &instance{siteAnswer: s, t: t, m: m, memory: tensors{}}
	for _, p := range []*program.Program{s.Init, s.InitState} {
		if p != nil {
			maps.Copy(in.memory, inSingle(in.run(p, s.initialInputs(p, sample, statistics))))
		}
	}
	if s.SearchEvery > 0 {
		for _, st := range s.State {
			zeros := make([]float64, program.FloatType(st.Shape...).Size())
			in.memory[spec.KeptPrefix+st.Name] = reference.Floats(zeros, st.Shape...)
		}
		maps.Copy(in.memory, in.next(sample))
	}
	return in
}

// inSingle rounds values to binary32, the precision of training.
func inSingle(values tensors) tensors {
	for name, v := range values {
		values[name] = v.Single()
	}
	return values
}

// hasMemory reports whether there are trained parameters or state, which all rows share.
func (s *siteAnswer) hasMemory() bool { return s.Init != nil || len(s.State) > 0 }

func (in *instance) from(sample []float64) *instance {
	return in.siteAnswer.instance(in.t, in.m, sample)
}

// at returns the example that describes the instance in reports; given also includes x.
func (in *instance) at() example { return in.example.on(in.m) }

func (in *instance) given(x []float64) example {
	e := in.at()
	e.input = x
	return e
}

func (in *instance) inputs(p *program.Program, x []float64) tensors {
	inputs := tensors{spec.InputX: reference.Floats(x, in.shape...)}
	for i, name := range []string{spec.InputNoise, spec.InputSharedNoise} {
		if p.Input(name) >= 0 {
			r := rand.New(rand.NewPCG(uint64(in.step), uint64(i)))
			inputs[name] = reference.Uints([]uint32{r.Uint32(), r.Uint32()}, 2)
		}
	}
	if p.Input(spec.InputStep) >= 0 {
		inputs[spec.InputStep] = reference.Float(float64(1 + in.step))
	}
	if p.Input(spec.InputSteps) >= 0 {
		inputs[spec.InputSteps] = reference.Float(runSteps)
	}
	maps.Copy(inputs, in.memory)
	return inputs
}

// runSteps is the number of steps of the run, of which checks try fewer.
const runSteps = 1000

func (in *instance) atStep(step int) *instance {
	other := *in
	other.step = step
	return &other
}

// reverseInputs returns the inputs of the backward pass, which include dy, the gradient with
// respect to the value.
func (in *instance) reverseInputs(p *program.Program, x, dy []float64) tensors {
	inputs := in.inputs(p, x)
	inputs[spec.InputDY] = reference.Floats(dy, in.shape...)
	return inputs
}

func (in *instance) run(p *program.Program, inputs tensors) tensors {
	out, err := in.m.Run(p, inputs)
	in.t.must(in.at(), err)
	return out
}

// quantization is the result of quantizing a tensor; results that the quantizer lacks are nil.
type quantization struct {
	value, codes, mask []float64
	outputs            tensors
}

func (in *instance) quantize(x []float64) quantization {
	return newQuantization(in.run(in.Program, in.inputs(in.Program, x)))
}

func newQuantization(out tensors) quantization {
	of := func(name string) []float64 { return out[name].Float64s() }
	return quantization{of(spec.OutputValue), of(spec.OutputCodes), of(spec.OutputMask), out}
}

func (q quantization) part(from, to int) quantization {
	cut := func(v []float64) []float64 { return v[min(from, len(v)):min(to, len(v))] }
	return quantization{value: cut(q.value), codes: cut(q.codes), mask: cut(q.mask)}
}

func (in *instance) gradient(x, dy []float64) tensors {
	vjp, err := in.reverse()
	in.t.must(in.at(), err)
	return in.run(vjp, in.reverseInputs(vjp, x, dy))
}

func (in *instance) byX(x, dy []float64) []float64 {
	return in.gradient(x, dy)[autodiff.Prefix+spec.InputX].Float64s()
}

// within, equal and finite call the trial's methods for results in the shape of x. If x is nil,
// reports do not show it.
func (in *instance) within(x []float64, what string, got, want []float64,
	allowed func(i int) float64) bool {
	return in.t.within(in.given(x), what, in.shape, got, want, allowed)
}

func (in *instance) equal(x []float64, what string, got, want []float64) bool {
	return in.within(x, what, got, want, upTo(0))
}

func (in *instance) finite(x []float64, what string, got []float64) bool {
	return in.t.finite(in.given(x), what, in.shape, got)
}

// checkParameters builds every variant for every role, and runs it once. At least one role must
// support the defaults.
func (q *quantizerRun) checkParameters(t *trial) {
	for i, v := range slices.Concat(q.space.variants, q.space.random) {
		t.begin()
		var errs []error
		for _, role := range q.roles() {
			s, err := q.ask(v, role, 4, 128)
			switch {
			case err == nil:
				s.runOnce(t)
			case isRefusal(err):
				errs = append(errs, err)
			default:
				t.ok(s.example, err)
			}
		}
		if len(errs) == len(q.roles()) {
			if t.refuse(example{}, errs[0]); i == 0 {
				t.ok(example{settings: v.changed}, errs[0])
			}
		}
	}
}

func (s *siteAnswer) runOnce(t *trial) {
	t.run(func() {
		x := normal(1, s.shape...)
		in := s.instance(t, Reference{}, x)
		in.finite(x, "value", in.quantize(x).value)
	})
}

// checkShapes requests row lengths from 1 to those of a model, odd ones, and those around a block
// of 32; all depths; and the operands of the products of the backward pass, any of which may be
// refused.
func (q *quantizerRun) checkShapes(t *trial) {
	v := q.space.variants[0]
	for _, role := range q.roles() {
		if _, err := q.ask(v, role, 4, 128); isRefusal(err) {
			t.notef("sites of the role %s are refused", role)
			continue
		}
		for _, d := range []int{1, 3, 31, 32, 33, 128, 640, 1024} {
			for _, rows := range []int{1, 7} {
				s, err := q.ask(v, role, rows, d)
				if err == nil {
					s.runOnce(t)
					continue
				}
				t.begin()
				alone := ofAttention(role) && rows == 1 // token groups need several rows
				if d%32 == 0 && len(s.settings) == 0 && !alone {
					t.ok(s.example, err)
				} else {
					t.refuse(s.example, err)
				}
			}
		}
		for _, at := range [][2]int{{0, 1}, {1, 2}, {47, 48}, {-1, 2}, {-1, 0}} {
			t.begin()
			name := fmt.Sprintf("%s of block %d of %d", role, at[0], at[1])
			s := q.answer(v, siteOf(role, []int{4, 128}, at[0], at[1]), name)
			if t.ok(s.example, s.err) {
				s.runOnce(t)
			}
		}
	}
	for _, site := range []sdk.Site{
		{Role: sdk.RoleGradient, Product: sdk.ProductInputGradient},
		{Role: sdk.RoleWeight, Product: sdk.ProductInputGradient},
		{Role: sdk.RoleGradient, Product: sdk.ProductWeightGradient},
		{Role: sdk.RoleActivation, Product: sdk.ProductWeightGradient},
	} {
		site.Name, site.Layers, site.Shape = "layers.0.wq", 1, []int{7, 128}
		t.begin()
		s := q.answer(v, site, fmt.Sprintf("%s in the product %s", site.Role, site.Product))
		if s.err == nil {
			s.runOnce(t)
		} else if !isRefusal(s.err) {
			t.ok(s.example, s.err)
		}
	}
}

func (q *quantizerRun) checkDeterministic(t *trial) {
	for _, v := range q.space.variants {
		for _, s := range q.sites(v, matrixShapes[0]...) {
			t.begin()
			again := q.answer(v, s.site, s.role)
			if again.err == nil && s.evaluates {
				again = again.evaluation
			}
			if t.ok(s.example, again.err) && !s.samePrograms(again) {
				t.failf(s.example, "a second request gives other programs")
			}
		}
	}
	q.everywhere(func(_ *trial, in *instance, x []float64) {
		first, second := in.quantize(x), in.quantize(x)
		in.equal(x, "value of a second run", second.value, first.value)
	})(t)
}

func (q *quantizerRun) checkDevices(t *trial) {
	if len(q.machines) == 1 {
		t.skipf(noDevice)
		return
	}
	q.onReference(func(_ *trial, in *instance, x []float64) {
		vjp, err := in.reverse()
		t.must(in.at(), err)
		compare := func(what string, p *program.Program, inputs tensors) {
			t.compare(in.given(x), q.machines[1:], what, p, inputs)
		}
		compare("", in.Program, in.inputs(in.Program, x))
		compare("gradient ", vjp, in.reverseInputs(vjp, x, normal(7, in.shape...)))
		statistics := in.statistics(x, operand(otherRole(in.site.Role), in.shape[1]))
		for _, p := range []*program.Program{in.Init, in.InitState} {
			if p != nil {
				compare("initial ", p, in.initialInputs(p, x, statistics))
			}
		}
		for _, p := range in.Trained {
			if name := spec.TrainedPrefix + p.Name; p.Constrain != nil {
				compare("constrained ", p.Constrain, tensors{name: in.memory[name]})
			}
		}
		if in.Next != nil {
			compare("next ", in.Next, in.inputs(in.Next, x))
		}
	})(t)
}
