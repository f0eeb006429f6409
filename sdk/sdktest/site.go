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

// quantizerRun is one run of the kit on a quantizer.
type quantizerRun struct {
	*session
	subject QuantizerSubject
	asked   map[string]*siteAnswer
	asksFor []sdk.Role // see roles
}

// siteAnswer is a quantizer's answer for one site.
type siteAnswer struct {
	spec.Quantizer
	example
	err     error
	variant variant
	asked   sdk.Role         // the role of the site
	vjp     *program.Program // the backward pass, made when needed
	// evaluation is the answer with the program of evaluation instead of that of training;
	// nil if they are the same, and in itself. evaluates says that this is such an answer.
	evaluation *siteAnswer
	evaluates  bool
	// search finds the state of a quantizer that searches.
	search func(sdk.SearchInput) error
}

func (q *quantizerRun) ask(v variant, role sdk.Role, shape ...int) (*siteAnswer, error) {
	key := fmt.Sprint(role, shape, settingsText(v.changed))
	s, ok := q.asked[key]
	if !ok {
		s = &siteAnswer{variant: v, asked: role, example: example{role: string(role), shape: shape, settings: v.changed}, search: q.search(v, role, shape, usual)}
		if s.Quantizer, s.err = q.programs(v, role, shape, usual); s.err == nil && s.Evaluate != nil {
			e := *s
			e.Quantizer, e.evaluates, e.role = s.ForEvaluation(), true, "evaluation of "+e.role
			s.evaluation = &e
		}
		q.asked[key] = s
	}
	if s.err == nil {
		q.answered++
	}
	return s, s.err
}

// depth is where a site is among the blocks of a model; layer is -1 for one that is in none.
type depth struct{ layer, layers int }

// usual is where sites are unless a check says otherwise.
var usual = depth{0, 2}

func (q *quantizerRun) programs(v variant, role sdk.Role, shape []int, at depth) (spec.Quantizer, error) {
	return q.answer(site(v, role, shape, at))
}

func (q *quantizerRun) answer(site sdk.Site) (spec.Quantizer, error) {
	out, err := q.subject.Programs(site)
	if err != nil {
		return out, err
	}
	return out, out.Check(site.Shape)
}

func (q *quantizerRun) search(v variant, role sdk.Role, shape []int, at depth) func(sdk.SearchInput) error {
	return func(in sdk.SearchInput) error { return q.subject.Search(site(v, role, shape, at), in) }
}

func site(v variant, role sdk.Role, shape []int, at depth) sdk.Site {
	name := "embedding"
	if at.layer >= 0 {
		name = fmt.Sprintf("layers.%d.wq", at.layer)
	}
	s := sdk.Site{Role: role, Name: name, Layer: at.layer, Layers: at.layers, Shape: slices.Clone(shape), Values: v.values}
	if role != sdk.RoleWeight && len(shape) > 0 {
		s.Context = shape[0] // one sequence
	}
	if ofAttention(role) {
		s.Name, s.Heads = fmt.Sprintf("layers.%d.attn.%ss", at.layer, role), headsOf(s.RowLen())
	}
	return s
}

// matrixShapes are the shapes for checks that need a matrix: rows of odd length, which
// rotations leave alone, and of a regular one.
var matrixShapes = [][]int{{4, 33}, {3, 128}}

// edgeShapes are shapes with which the first variant is tried as well: a single number,
// single rows, and rows a little shorter or longer than a block.
var edgeShapes = [][]int{{1, 1}, {4, 1}, {4, 3}, {4, 31}, {1, 32}, {4, 32}, {1, 33}}

// roles are the roles that sites have: weight and activation, and key and value where a plugin has
// other programs for these than for activations. Those of queries are like those of keys. A plugin
// may be too old to know them.
func (q *quantizerRun) roles() []sdk.Role {
	if q.asksFor == nil {
		q.asksFor = []sdk.Role{sdk.RoleWeight, sdk.RoleActivation}
		v := q.space.singles[0]
		activation, unanswered := q.ask(v, sdk.RoleActivation, 4, 128)
		for _, role := range []sdk.Role{sdk.RoleKey, sdk.RoleValue} {
			s, err := q.ask(v, role, 4, 128)
			same := err == nil && unanswered == nil && maps.Equal(spec.Hashes(s.Programs()), spec.Hashes(activation.Programs()))
			if !same && !isRefusal(err) && !errors.Is(err, client.ErrVersion) {
				q.asksFor = append(q.asksFor, role)
			}
		}
	}
	return q.asksFor
}

func ofAttention(role sdk.Role) bool {
	return role == sdk.RoleKey || role == sdk.RoleValue || role == sdk.RoleQuery
}

func headsOf(length int) int {
	const size = 32
	if length%size == 0 {
		return length / size
	}
	return 1
}

// sites are the answers for a variant at a shape: for a weight, and for other roles if
// their programs are different; in training, and in evaluation if that has another program.
func (q *quantizerRun) sites(v variant, shape ...int) []*siteAnswer {
	var list []*siteAnswer
	for _, role := range q.roles() {
		s, err := q.ask(v, role, shape...)
		if err != nil || len(list) > 0 && maps.Equal(spec.Hashes(s.Programs()), spec.Hashes(list[0].Programs())) {
			continue
		}
		if list = append(list, s); s.evaluation != nil {
			list = append(list, s.evaluation)
		}
	}
	return list
}

// anyRounding reports whether values may go to other levels than the nearest: with settings
// that take noise, or where that is claimed. A quantizer that claims so and has another
// program for evaluation rounds to nearest there.
func (q *quantizerRun) anyRounding(s *siteAnswer) bool {
	return !s.evaluates && (s.variant.claims(sdk.ClaimAnyRounding) || s.Draws())
}

// quantizerCheck looks at a site on a machine, with a matrix of normal random numbers.
type quantizerCheck func(t *trial, in *instance, x []float64)

// on is a check of every variant and matrix shape that the plugin answers, on each machine. Other
// checks report the answers that are errors.
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

func (q *quantizerRun) onOracle(f quantizerCheck) func(*trial) {
	return q.on([]Machine{Oracle{}}, f)
}

func (s *siteAnswer) reverse() (_ *program.Program, err error) {
	if s.vjp == nil {
		s.vjp, err = s.Reverse()
	}
	return s.vjp, err
}

// instance is a site on a machine, with trained parameters and state, at a training step. An error
// of a run fails the trial and ends the example.
type instance struct {
	*siteAnswer
	t       *trial
	m       Machine
	trained map[string]reference.Tensor
	kept    map[string]reference.Tensor // the state
	step    int                         // the number of the step, from 0; it also determines the keys of random bits
}

func (s *siteAnswer) instance(t *trial, m Machine, sample []float64) *instance {
	return s.beside(t, m, sample, operand(otherRole(s.asked), s.shape[len(s.shape)-1]))
}

// beside is instance where the product has another operand.
func (s *siteAnswer) beside(t *trial, m Machine, sample, other []float64) *instance {
	in := &instance{siteAnswer: s, t: t, m: m}
	in.trained = in.initial(s.Init, sample, other)
	if in.kept = in.initial(s.InitState, sample, other); s.SearchEvery > 0 {
		in.kept = map[string]reference.Tensor{}
		for _, st := range s.State {
			in.kept[spec.KeptPrefix+st.Name] = reference.Floats(make([]float64, program.FloatType(st.Shape...).Size()), st.Shape...)
		}
		in.kept = in.next(sample)
	}
	return in
}

// initial runs one of the programs of initial values; nil if there is none.
func (in *instance) initial(p *program.Program, sample, other []float64) map[string]reference.Tensor {
	if p == nil {
		return nil
	}
	return inSingle(in.run(p, in.initialInputs(p, sample, other)))
}

// inSingle rounds values to binary32, in which they are kept in training.
func inSingle(values map[string]reference.Tensor) map[string]reference.Tensor {
	for name, v := range values {
		values[name] = v.Single()
	}
	return values
}

// startingSamples are tensors from which trained parameters and state start: x, large and small
// ones, and constant ones.
func startingSamples(x []float64) [][]float64 {
	return [][]float64{x, scaled(0x1p20, x), scaled(0x1p-30, x), make([]float64, len(x)), full(-2.5, len(x))}
}

// hasMemory says that what x is initialised from matters: there are trained parameters or state,
// which rows share.
func (s *siteAnswer) hasMemory() bool { return s.Init != nil || len(s.State) > 0 }

func (in *instance) from(sample []float64) *instance {
	return in.siteAnswer.instance(in.t, in.m, sample)
}

// at is where the instance runs; given also says on which x.
func (in *instance) at() example { return in.example.on(in.m) }

func (in *instance) given(x []float64) example {
	e := in.at()
	e.input = x
	return e
}

func (in *instance) inputs(x []float64) map[string]reference.Tensor {
	return in.inputsOf(in.Program, x)
}

func (in *instance) inputsOf(p *program.Program, x []float64) map[string]reference.Tensor {
	inputs := map[string]reference.Tensor{spec.InputX: reference.Floats(x, in.shape...)}
	for i, name := range []string{spec.InputNoise, spec.InputSharedNoise} {
		if p.Input(name) >= 0 {
			inputs[name] = keyAt(in.step, i)
		}
	}
	if p.Input(spec.InputStep) >= 0 {
		inputs[spec.InputStep] = reference.Float(float64(1 + in.step))
	}
	maps.Copy(inputs, in.trained)
	maps.Copy(inputs, in.kept)
	return inputs
}

func keyAt(step, which int) reference.Tensor {
	r := rand.New(rand.NewPCG(uint64(step), uint64(which)))
	return reference.Uints([]uint32{r.Uint32(), r.Uint32()}, 2)
}

func (in *instance) atStep(step int) *instance {
	other := *in
	other.step = step
	return &other
}

// reverseInputs are those of the backward pass: they also have dy, the gradient with
// respect to the value.
func (in *instance) reverseInputs(p *program.Program, x, dy []float64) map[string]reference.Tensor {
	inputs := in.inputsOf(p, x)
	inputs[spec.InputDY] = reference.Floats(dy, in.shape...)
	return inputs
}

func (in *instance) run(p *program.Program, inputs map[string]reference.Tensor) map[string]reference.Tensor {
	out, err := in.m.Run(p, inputs)
	in.t.must(in.at(), err)
	return out
}

// quantization is what a quantizer makes of a tensor. What it does not give is empty.
type quantization struct {
	value, codes, mask []float64
	outputs            map[string]reference.Tensor
}

func (in *instance) quantize(x []float64) quantization {
	return newQuantization(in.run(in.Program, in.inputs(x)))
}

func newQuantization(out map[string]reference.Tensor) quantization {
	return quantization{out[spec.OutputValue].Float64s(), out[spec.OutputCodes].Float64s(), out[spec.OutputMask].Float64s(), out}
}

func (q quantization) part(from, to int) quantization {
	cut := func(v []float64) []float64 { return v[min(from, len(v)):min(to, len(v))] }
	return quantization{value: cut(q.value), codes: cut(q.codes), mask: cut(q.mask)}
}

func (in *instance) gradient(x, dy []float64) map[string]reference.Tensor {
	vjp, err := in.reverse()
	in.t.must(in.at(), err)
	return in.run(vjp, in.reverseInputs(vjp, x, dy))
}

// byX is the gradient with respect to x alone.
func (in *instance) byX(x, dy []float64) []float64 {
	return in.gradient(x, dy)[autodiff.Prefix+spec.InputX].Float64s()
}

// within, equal and finite are the methods of the trial for results that have an element
// for each of x. x is nil if it would tell a reader nothing.
func (in *instance) within(x []float64, what string, got, want []float64, allowed func(i int) float64) bool {
	return in.t.within(in.given(x), what, in.shape, got, want, allowed)
}

func (in *instance) equal(x []float64, what string, got, want []float64) bool {
	return in.within(x, what, got, want, upTo(0))
}

func (in *instance) finite(x []float64, what string, got []float64) bool {
	return in.t.finite(in.given(x), what, in.shape, got)
}
