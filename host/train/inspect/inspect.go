// Package inspect shows a quantizer to its author: what its programs cost, what becomes one kernel,
// and what they make of a tensor. Programs run on the reference implementation, in float64.
package inspect

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"strings"

	"gonum.org/v1/gonum/floats"

	"github.com/cage-qat/cage/host/compute/triton"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/reference"
	"github.com/cage-qat/cage/sdk/spec"
)

// Part is a program as a step runs it.
type Part struct {
	Name    string
	Program *program.Program
	// Operations and Products are for each element of the tensor. Bytes are those of the
	// inputs and outputs, in float32, for each element.
	Operations, Products, Bytes float64
	// Passes is how often the tensor has to be read where each pass ends at a reduction, product or
	// rotation.
	Passes int
	// Kernel says what becomes one kernel on a GPU, or why nothing does.
	Kernel string
	// Text is the kernel; nil if there is none.
	Text *triton.Kernel
}

// Passes are the forward and the backward pass of a quantizer at a site of the given shape, without
// the rest of the program. The backward pass is absent where gradients pass unchanged.
func Passes(q spec.Quantizer, shape []int) ([]Part, error) {
	split, err := q.Split()
	if err != nil {
		return nil, err
	}
	parts := []Part{NewPart("forward", split.Forward, shape)}
	if len(split.Backward.Nodes) > 0 {
		parts = append(parts, NewPart("backward", split.Backward, shape))
	}
	return parts, nil
}

// NewPart describes a program that is about a tensor of the given shape.
func NewPart(name string, p *program.Program, shape []int) Part {
	cost, n := costOf(p), float64(program.FloatType(shape...).Size())
	bytes := int64(0)
	for _, in := range p.Inputs {
		bytes += size(in.Type)
	}
	for _, o := range p.Outputs {
		bytes += size(p.TypeOf(o.Value))
	}
	part := Part{Name: name, Program: p, Bytes: float64(bytes) / n,
		Operations: float64(cost.operations) / n, Products: float64(cost.products) / n, Passes: cost.passes}
	part.Kernel, part.Text = kernel(p, int(n)/shape[len(shape)-1])
	return part
}

// size is the number of bytes of a value.
func size(t program.Type) int64 {
	if t.DType == program.Bool {
		return t.Size()
	}
	return 4 * t.Size()
}

func kernel(p *program.Program, rows int) (string, *triton.Kernel) {
	d, err := triton.Divide(p, rows)
	if err != nil {
		return why(err), nil
	}
	if d.Rows == nil {
		return "operations, because all of it needs whole tensors", nil
	}
	k, err := triton.New(d.Rows, rows, triton.LargestRow, nil)
	switch {
	case err != nil:
		return why(err), nil
	case d.Whole == nil:
		return "one kernel", k
	case len(d.Whole.Outputs) == 1:
		return "one kernel, and operations for one number", k
	}
	return fmt.Sprintf("one kernel, and operations for %d numbers", len(d.Whole.Outputs)), k
}

func why(err error) string {
	r, ok := errors.AsType[*triton.Refusal](err)
	switch {
	case !ok:
		return "operations: " + err.Error()
	case r.Node == "":
		return "operations, because " + r.Reason
	}
	return fmt.Sprintf("operations, because of %s: %s", r.Node, r.Reason)
}

// Random is a tensor of normal numbers, of which every hundredth is ten times as large, rounded to
// float32.
func Random(shape []int, seed uint64) []float64 {
	r := rand.New(rand.NewPCG(seed, 1))
	x := make([]float64, program.FloatType(shape...).Size())
	for i := range x {
		v := r.NormFloat64()
		if r.IntN(100) == 0 {
			v *= 10
		}
		x[i] = float64(float32(v))
	}
	return x
}

// Result is what a quantizer makes of a tensor. What it does not give is the zero Tensor.
type Result struct {
	X, Value, Codes, Scale, Mask reference.Tensor
	// Error is the norm of Q(x) − x over that of x, and Largest its largest magnitude.
	Error, Largest float64
	// Gradients are those of the backward pass, for dy, by x and the trained parameters, by name.
	DY        reference.Tensor
	Gradients map[string]reference.Tensor
	// Trained and State are the trained parameters and the state at their start, Next is the state
	// after the step, by name.
	Trained, State, Next map[string]reference.Tensor
}

// Run quantizes x, with noise from the seed, at the first step; with backward also the gradients
// for random dy. Trained parameters and state start from x, and from its columns as those of both
// operands of the product.
func Run(q spec.Quantizer, x reference.Tensor, seed uint64, backward bool) (Result, error) {
	inputs, err := inputs(q, x, seed)
	if err != nil {
		return Result{}, err
	}
	out, err := run(q.Program, inputs)
	if err != nil {
		return Result{}, err
	}
	r := Result{X: x, Value: out[spec.OutputValue], Codes: out[spec.OutputCodes], Scale: out[spec.OutputScale], Mask: out[spec.OutputMask]}
	r.Trained, r.State = named(inputs, spec.TrainedPrefix), named(inputs, spec.KeptPrefix)
	if q.Next != nil {
		if r.Next, err = run(q.Next, inputs); err != nil {
			return Result{}, err
		}
	}
	off := make([]float64, x.Len())
	floats.SubTo(off, r.Value.Floats, x.Floats)
	r.Error, r.Largest = floats.Norm(off, 2)/floats.Norm(x.Floats, 2), floats.Norm(off, math.Inf(1))
	if !backward {
		return r, nil
	}
	p, err := q.Reverse()
	if err != nil {
		return Result{}, err
	}
	r.DY = reference.Floats(Random(x.Type.Shape, seed+1), x.Type.Shape...)
	inputs[spec.InputDY] = r.DY
	r.Gradients, err = run(p, inputs)
	return r, err
}

func named(tensors map[string]reference.Tensor, prefix string) map[string]reference.Tensor {
	out := maps.Clone(tensors)
	maps.DeleteFunc(out, func(name string, _ reference.Tensor) bool { return !strings.HasPrefix(name, prefix) })
	return out
}

func run(p *program.Program, values map[string]reference.Tensor) (map[string]reference.Tensor, error) {
	in := maps.Clone(values)
	maps.DeleteFunc(in, func(name string, _ reference.Tensor) bool { return p.Input(name) < 0 })
	return reference.Run(p, in)
}

// inputs are those of a quantizer's programs, at the first step.
func inputs(q spec.Quantizer, x reference.Tensor, seed uint64) (map[string]reference.Tensor, error) {
	if q.SearchEvery > 0 {
		return nil, errors.New("the quantizer finds its state by a search in its own process, which is not run here: try it in a test, with sdktest.Quantizer or run the kit (cage plugins test); `cage plugins program` shows its programs")
	}
	r := rand.New(rand.NewPCG(seed, 2))
	key := func() reference.Tensor { return reference.Uints([]uint32{r.Uint32(), r.Uint32()}, 2) }
	in := map[string]reference.Tensor{spec.InputX: x, spec.InputNoise: key(), spec.InputSharedNoise: key(), spec.InputStep: reference.Float(1)}
	maps.Copy(in, columns(x))
	for _, start := range []*program.Program{q.Init, q.InitState} {
		if start == nil {
			continue
		}
		values, err := run(start, in)
		if err != nil {
			return nil, err
		}
		maps.Copy(in, values)
	}
	return in, nil
}

// columns are the statistics of columns where both operands of the product are x.
func columns(x reference.Tensor) map[string]reference.Tensor {
	list := spec.ColumnInputs(x.Type.Shape)
	d := int(list[0].Type.Size())
	most, mean := make([]float64, d), make([]float64, d)
	for i, v := range x.Floats {
		most[i%d] = max(most[i%d], math.Abs(v))
		mean[i%d] += math.Abs(v) / float64(x.Len()/d)
	}
	of := map[string][]float64{spec.InputActivationsMax: most, spec.InputWeightsMax: most, spec.InputActivationsMean: mean, spec.InputWeightsMean: mean}
	out := map[string]reference.Tensor{}
	for _, c := range list {
		out[c.Name] = reference.Floats(of[c.Name], c.Type.Shape...)
	}
	return out
}
