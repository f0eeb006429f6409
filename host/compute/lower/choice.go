package lower

import (
	"errors"
	"fmt"
	"math"
	"math/bits"
	"math/rand/v2"
	"slices"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"

	"github.com/cage-qat/cage/host/compute/device"
	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/compute/triton"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/spec"
)

// A Kind of things that a GPU computes in one kernel, or in operations of the graph. Each is tried by itself
// ([engine.Device.ChooseFused]), and given up without the others.
type Kind string

// The kinds.
const (
	Quantizers      Kind = "quantizers" // that do not rotate
	Rotations       Kind = "quantizers with rotations of up to 128"
	LargeRotations  Kind = "quantizers with larger rotations"
	Joined          Kind = "quantizers with the norm or gate before them"
	Norms           Kind = "adjoints of norms"
	Losses          Kind = "losses"
	LossSums        Kind = "sums of losses" // of a long vocabulary, and in evaluations
	IntegerProducts Kind = "products of integers"
)

// maxRotated is the largest rotation of [Rotations].
const maxRotated = 128

// valuesMultiplied warns of what is done in place of products of codes.
const valuesMultiplied = "quantized matrices are multiplied by their values and not by their codes, which takes more time"

// A Subject is what a kernel is of, and what stands for such kernels in the trial of their kind.
type Subject struct {
	Kind Kind
	// Of returns a program over the given number of rows. The inputs that it makes have one row, or that number of them.
	Of func(rows int) (*program.Program, error)
	// Stored says how its outputs are stored, and Largest how long a row may be.
	Stored  InMemory
	Largest int
}

// quantizerSubject stands for the passes of quantizers that rotate blocks of a size, 0 for none, of rows of a width.
func quantizerSubject(kind Kind, width, block int) Subject {
	return Subject{kind, func(rows int) (*program.Program, error) { return standIn(kind == Joined, rows, width, block) }, InMemory{spec.OutputValue: triton.BFloat16}, triton.LargestRow}
}

// subjectOf is that of a quantizer's pass over a number of rows.
func subjectOf(p *program.Program, rows int, joined bool) Subject {
	block := 0
	for _, n := range p.Nodes {
		if n.Op == program.OpHadamard {
			block = max(block, n.Attr.Block)
		}
	}
	kind := Quantizers
	switch {
	case joined:
		kind = Joined
	case block > maxRotated:
		kind = LargeRotations
	case block > 0:
		kind = Rotations
	}
	return quantizerSubject(kind, int(p.Inputs[0].Type.Size())/rows, block)
}

// standIn is a quantizer to integers. It has sums over rows, maxima over groups and a mask, as quantizers have; joined, it
// reads a row that it normalizes.
func standIn(joined bool, rows, width, block int) (*program.Program, error) {
	const largestGroup = 32
	group := min(1<<bits.TrailingZeros(uint(width)), largestGroup)
	b := program.NewBuilder("trial/forward")
	z := b.Input(spec.InputX, program.FloatType(rows, width))
	if joined {
		gain := b.Input("gain", program.FloatType(1, width))
		z = z.Mul(b.Const(1).Div(z.Square().MeanRow().Shift(1e-6).Sqrt())).Mul(gain)
	}
	if block > 0 {
		z = z.Hadamard(block)
	}
	r := z.Div(z.Mul(z).MeanRow().Sqrt()).Reshape(rows, width/group, group)
	highest := r.Abs().MaxRow()
	code := r.Mul(b.Const(4)).Clamp(b.Const(-8), b.Const(7)).Round()
	value := r.Abs().Le(b.Const(2)).Select(code.Mul(highest), b.Const(0))
	b.Output(spec.OutputValue, value.Reshape(rows, width))
	return b.Build()
}

// hasKernels reports whether a device, which may be nil, computes what a subject stands for by kernels.
func hasKernels(d *engine.Device, s Subject) bool {
	return d.Fuses() || hasTriton(d) && chosen(d, s.Kind, "programs are computed without kernels of this kind, which takes more time and memory", s.trial)
}

// chosen reports whether a kind is computed fused on a GPU: as the setting says, or else by a trial.
func chosen(d *engine.Device, kind Kind, inPlace string, trial func(elements int) (engine.Trial, error)) bool {
	if d.Kernels() != device.AutoKernels {
		return !d.Excludes(string(kind))
	}
	return d.ChooseFused(string(kind), inPlace, func() (engine.Trial, error) { return trial(trialElements) })
}

// trialElements are those of a tensor in a trial: more than any GPU has in its cache.
const trialElements = 1 << 24

// trial computes the subject's program in both ways, over rows that have the given number of elements.
func (s Subject) trial(elements int) (engine.Trial, error) {
	const multiple = 64
	one, err := s.Of(multiple)
	if err != nil {
		return engine.Trial{}, err
	}
	rows := max(elements*multiple/int(one.Inputs[0].Type.Size())/multiple, 1) * multiple
	p, err := s.Of(rows)
	if err != nil {
		return engine.Trial{}, err
	}
	at := s.Stored
	outputs := func(out map[string]*graph.Node, at InMemory) (list []*graph.Node) {
		for _, o := range p.Outputs {
			list = append(list, at.store(o.Name, out[o.Name]))
		}
		return list
	}
	plain := func(g *graph.Graph, in []*graph.Node) []*graph.Node {
		out := Lower(g, p, in)
		for _, o := range p.Outputs {
			if at[o.Name] == triton.Summed {
				out[o.Name] = graph.ReduceSum(out[o.Name], 0)
			}
		}
		return outputs(out, nil)
	}
	return engine.Trial{
		Inputs:  randomInputs(p),
		Prepare: asTyped(p),
		Fused: func(g *graph.Graph, in []*graph.Node) []*graph.Node {
			out, ok := kernelOf(g, p, rows, s.Largest, in, at)
			if !ok {
				panic(errors.New("the trial fits no kernel"))
			}
			return outputs(out, at)
		},
		Plain:   plain,
		Compare: compareCodes,
	}, nil
}

// randomInputs are numbers from a normal distribution for floats, and columns of the first input for integers. A few rows of
// numbers are repeated.
func randomInputs(p *program.Program) (list []engine.Input) {
	rng := rand.New(rand.NewPCG(1, 2))
	shape := p.Inputs[0].Type.Shape
	for _, in := range p.Inputs {
		draw := func() float32 { return float32(rng.NormFloat64()) }
		if in.Type.DType == program.Int {
			draw = func() float32 { return float32(rng.IntN(shape[len(shape)-1])) }
		}
		list = append(list, repeated(in.Name, draw, in.Type.Shape...))
	}
	return list
}

// repeated is an input that consists of some random numbers, again and again.
func repeated(name string, draw func() float32, dims ...int) engine.Input {
	const most = 1<<18 + 3 // so that rows differ
	s := shapes.Make(dtypes.Float32, dims...)
	some := make([]float32, min(s.Size(), most))
	for i := range some {
		some[i] = draw()
	}
	return engine.Input{Spec: engine.Spec{Name: name, Shape: s}, Data: slices.Repeat(some, s.Size()/len(some)+1)[:s.Size()]}
}

// asTyped converts the inputs of a program from floats to their types; nil if they are floats.
func asTyped(p *program.Program) engine.BuildFunc {
	if !slices.ContainsFunc(p.Inputs, func(in program.Input) bool { return in.Type.DType != program.Float }) {
		return nil
	}
	return func(_ *graph.Graph, in []*graph.Node) []*graph.Node {
		out := slices.Clone(in)
		for i, input := range p.Inputs {
			out[i] = graph.ConvertDType(in[i], InMemory(nil).stored(input.Name, input.Type.DType))
		}
		return out
	}
}

// compareCodes fails if the outputs of kernels differ too much from those of the graph. A few numbers may differ by a whole code,
// because one half way between two codes can be rounded to either; the others differ by the rounding to bfloat16.
func compareCodes(fused, plain [][]float32) error {
	const most, tolerance = 0.01, 1.0 / 64
	for i, values := range plain {
		differing := 0
		if err := checkZeros(values); err != nil {
			return err
		}
		for j, want := range values {
			if !(math.Abs(float64(fused[i][j]-want)) <= tolerance*math.Abs(float64(want))) {
				differing++
			}
		}
		if share := float64(differing) / float64(len(values)); share > most {
			return fmt.Errorf("%.2g of the values of a kernel differ from those of the graph: want at most %g", share, most)
		}
	}
	return nil
}

// checkZeros fails if there are only zeros, as on a device that compiles and computes nothing.
func checkZeros(values []float32) error {
	if !slices.ContainsFunc(values, func(x float32) bool { return x != 0 }) {
		return errors.New("the device computes nothing but zeros")
	}
	return nil
}

// compareSums returns a function that fails if the relative error of an output beside the other is larger than a limit.
func compareSums(what string, most float64) func(fused, plain [][]float32) error {
	return func(fused, plain [][]float32) error {
		for i, values := range plain {
			if err := checkZeros(values); err != nil {
				return err
			}
			if e := engine.Distance(fused[i], values); !(e <= most) {
				return fmt.Errorf("a product of %s has a relative error of %.2g beside that of their values: want at most %g", what, e, most)
			}
		}
		return nil
	}
}

// multipliesIntegers reports whether a device multiplies matrices of integers with rows of a length by their codes.
func multipliesIntegers(d *engine.Device, length int) bool {
	if d.Kind() == device.CPU {
		return true
	}
	return chosen(d, IntegerProducts, valuesMultiplied, func(elements int) (engine.Trial, error) {
		rows := max(elements/length, 1)
		return integerTrial(rows, min(length, rows), length), nil // neither matrix has more elements than a trial
	})
}

// integerTrial multiplies codes of 4 bits in [rows, inner] and [columns, inner].
func integerTrial(rows, columns, inner int) engine.Trial {
	rng := rand.New(rand.NewPCG(5, 6))
	code := func() float32 { return float32(rng.IntN(16) - 8) }
	scale := func() float32 { return float32(0.5 + rng.Float64()) }
	x, w := []*graph.Node(nil), []*graph.Node(nil)
	split := func(in []*graph.Node) { x, w = in[:3], in[3:] } // integers, scales and values
	return engine.Trial{
		Inputs: []engine.Input{repeated("x", code, rows, inner), repeated("scale_x", scale, rows, 1), repeated("w", code, columns, inner), repeated("scale_w", scale, columns, 1)},
		Prepare: func(g *graph.Graph, in []*graph.Node) (out []*graph.Node) {
			for i := 0; i < len(in); i += 2 {
				codes, scales := in[i], in[i+1]
				values := graph.Mul(codes, graph.BroadcastToDims(scales, codes.Shape().Dimensions...))
				out = append(out, graph.ConvertDType(codes, dtypes.Int8), scales, engine.Operand(values))
			}
			return out
		},
		Fused: func(_ *graph.Graph, in []*graph.Node) []*graph.Node {
			split(in)
			return []*graph.Node{engine.DotIntegers(x[0], w[0], x[1], w[1], true)}
		},
		Plain: func(_ *graph.Graph, in []*graph.Node) []*graph.Node {
			split(in)
			return []*graph.Node{engine.DotGeneralRounded(graph.ConvertDType(x[2], dtypes.Float32), []int{1}, nil, graph.ConvertDType(w[2], dtypes.Float32), []int{1}, nil)}
		},
		Compare: compareSums("integers", 0.02),
	}
}
