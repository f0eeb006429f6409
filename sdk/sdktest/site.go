package sdktest

import (
	"fmt"
	"maps"
	"slices"

	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/autodiff"
	"github.com/cage-qat/cage/sdk/program/reference"
)

// site is a quantizer's answer for one site.
type site struct {
	sdk.QuantizerProgram
	place
	variant variant
	vjp     *program.Program // of the surrogate, made when needed
}

// wrt names the inputs that gradients are taken by.
func (s *site) wrt() []string {
	names := []string{sdk.InputX}
	for _, p := range s.Trained {
		names = append(names, sdk.TrainedPrefix+p.Name)
	}
	return names
}

// reverse is the reverse pass of the surrogate.
func (s *site) reverse() (*program.Program, error) {
	if s.vjp == nil {
		vjp, err := autodiff.VJP(s.Program, sdk.OutputSurrogate, s.wrt()...)
		if err != nil {
			return nil, err
		}
		s.vjp = vjp
	}
	return s.vjp, nil
}

// instance is a site on a machine with the trained parameters that a sample of the
// tensor gives.
type instance struct {
	*site
	m       Machine
	trained map[string]reference.Tensor
}

func (s *site) instance(m Machine, sample []float64) (*instance, error) {
	in := &instance{site: s, m: m}
	if s.Init == nil {
		return in, nil
	}
	var err error
	in.trained, err = m.Run(s.Init, map[string]reference.Tensor{sdk.InputX: reference.Floats(sample, s.shape...)})
	if err != nil {
		return nil, err
	}
	for name, v := range in.trained { // as they are kept in training
		in.trained[name] = reference.Floats(single(v.Floats), v.Type.Shape...)
	}
	return in, nil
}

// at is where the instance runs.
func (in *instance) at() place { return in.site.place.on(in.m) }

// given is where the instance runs, with the x that it gets there.
func (in *instance) given(x []float64) place {
	p := in.at()
	p.input = x
	return p
}

// inputs are those of the site's program.
func (in *instance) inputs(x []float64) map[string]reference.Tensor {
	inputs := map[string]reference.Tensor{sdk.InputX: reference.Floats(x, in.shape...)}
	maps.Copy(inputs, in.trained)
	return inputs
}

// answer is the result of one quantization. What the quantizer does not give is
// empty.
type answer struct {
	value, codes, scale, mask []float64
	outputs                   map[string]reference.Tensor
}

func (in *instance) quantize(x []float64) (answer, error) {
	out, err := in.m.Run(in.Program, in.inputs(x))
	if err != nil {
		return answer{}, err
	}
	return newAnswer(out), nil
}

// part is the answer for some of the elements, without the scale.
func (a answer) part(from, to int) answer {
	cut := func(v []float64) []float64 {
		if v == nil {
			return nil
		}
		return v[from:to]
	}
	return answer{value: cut(a.value), codes: cut(a.codes), mask: cut(a.mask)}
}

func newAnswer(out map[string]reference.Tensor) answer {
	get := func(name string) []float64 {
		if v, ok := out[name]; ok {
			return v.Float64s()
		}
		return nil
	}
	return answer{get(sdk.OutputValue), get(sdk.OutputCodes), get(sdk.OutputScale), get(sdk.OutputMask), out}
}

// gradient returns the gradients of Σ dy·surrogate by x and by the trained
// parameters.
func (in *instance) gradient(x, dy []float64) (map[string]reference.Tensor, error) {
	vjp, err := in.reverse()
	if err != nil {
		return nil, err
	}
	inputs := in.inputs(x)
	inputs[autodiff.Prefix+sdk.OutputSurrogate] = reference.Floats(dy, in.shape...)
	return in.m.Run(vjp, inputs)
}

// quantizerRun is one run of the kit on a quantizer.
type quantizerRun struct {
	options
	subject QuantizerSubject
	about   sdk.Description
	space   space
	asked   map[string]*site
	refused map[string]error
}

// ask returns the answer for a site, which is asked for once.
func (q *quantizerRun) ask(v variant, role sdk.Role, shape ...int) (*site, error) {
	key := fmt.Sprint(role, shape, settingsText(v.changed))
	if s, ok := q.asked[key]; ok {
		return s, q.refused[key]
	}
	s := &site{variant: v, place: place{role: string(role), shape: shape, settings: v.changed}}
	var err error
	s.QuantizerProgram, err = q.programs(v, role, shape)
	q.asked[key], q.refused[key] = s, err
	return s, err
}

func (q *quantizerRun) programs(v variant, role sdk.Role, shape []int) (sdk.QuantizerProgram, error) {
	out, err := q.subject.Programs(sdk.Site{Role: role, Name: "layers.0.wq", Shape: slices.Clone(shape), Values: v.values})
	if err != nil {
		return out, err
	}
	return out, out.Check(shape)
}

// matrices are the shapes for checks that need a matrix: rows of odd length, which
// rotations leave alone, and of a regular one.
var matrices = [][]int{{4, 33}, {3, 128}}

// edges are the shapes around those of blocks that the first variant is also tried
// with: a single number, single rows, and short ones.
var edges = [][]int{{1, 1}, {4, 1}, {4, 3}, {4, 31}, {1, 32}, {4, 32}, {1, 33}}

// roles of sites; the first that is accepted is that of most checks.
var roles = []sdk.Role{sdk.RoleWeight, sdk.RoleActivation}

// sites are the answers for a variant at a shape: for a weight, and for an
// activation where that is another program.
func (q *quantizerRun) sites(v variant, shape ...int) []*site {
	var list []*site
	for _, role := range roles {
		s, err := q.ask(v, role, shape...)
		if err == nil && (len(list) == 0 || !equalPrograms(s.Programs(), list[0].Programs())) {
			list = append(list, s)
		}
	}
	return list
}

// each calls f for every variant and matrix shape that the plugin answers, on each
// machine, with a normal matrix. An answer that fails is another check's business.
func (q *quantizerRun) each(t *trial, machines []Machine, f func(in *instance, x []float64)) {
	for k, v := range q.space.core() {
		shapes := matrices
		if k == 0 {
			shapes = slices.Concat(matrices, edges)
		}
		for i, shape := range shapes {
			x := normal(uint64(i), shape...)
			for _, s := range q.sites(v, shape...) {
				for _, m := range machines {
					in, err := s.instance(m, x)
					if t.ok(s.place.on(m), err) {
						f(in, x)
					}
				}
			}
		}
	}
}
