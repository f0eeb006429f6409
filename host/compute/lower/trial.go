package lower

import (
	"errors"
	"fmt"
	"math"
	"math/bits"
	"math/rand/v2"
	"slices"

	"github.com/cage-qat/cage/host/compute/device"
	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/compute/graph"
	"github.com/cage-qat/cage/host/compute/passes"
	"github.com/cage-qat/cage/host/compute/shapes"
	"github.com/cage-qat/cage/host/compute/triton"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/spec"
)

// A Kind is a class of programs that a GPU can compute with one kernel. Each kind has its own trial
// ([engine.Device.Passes]); if it fails, programs of the kind are lowered to graph operations.
type Kind string

const (
	Quantizers     Kind = "quantizers" // without rotations
	Rotations      Kind = "quantizers with rotations of up to 128"
	LargeRotations Kind = "quantizers with larger rotations"
	Joined         Kind = "quantizers with the norm or gate before them"
	Norms          Kind = "adjoints of norms"
	Losses         Kind = "losses"
)

// maxRotated is the largest rotation in programs of kind [Rotations].
const maxRotated = 128

// A Subject is a family of kernels. It includes a representative program for the trial of its kind.
type Subject struct {
	Kind Kind
	// Of returns the representative program for the given number of rows. Its inputs have one row
	// or that number of rows.
	Of func(rows int) (*program.Program, error)
	// Stored is the storage of the outputs, and Largest the largest number of elements in a row.
	Stored  InMemory
	Largest int
}

// subjectOf returns the subject of a quantizer's pass over a number of rows. Its trial program is
// an integer quantizer with typical operations: sums over rows, maxima over groups, and a mask. Its
// rows are as wide as those of the widest input. If the pass rotates, the trial includes its
// largest rotation; if joined is set, it also normalizes the rows that it reads.
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
	width := 0
	for _, in := range p.Inputs {
		width = max(width, int(in.Type.Size())/rows)
	}
	of := func(rows int) (*program.Program, error) {
		const largestGroup = 32
		group := min(1<<bits.TrailingZeros(uint(width)), largestGroup)
		b := program.NewBuilder("trial/forward")
		z := b.Input(spec.InputX, program.FloatType(rows, width))
		if kind == Joined {
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
	return Subject{kind, of, InMemory{spec.OutputValue: passes.BFloat16}, triton.LargestRow}
}

// hasKernels reports whether a device has kernels for the subject's kind.
func hasKernels(d *engine.Device, s Subject) bool {
	if !hasTriton(d) {
		return false
	}
	const elements = 1 << 24 // of a tensor: more than any GPU has in its cache
	return d.Kernels() != device.AutoKernels || d.Passes(string(s.Kind),
		"programs are computed without kernels of this kind, which takes more time and memory",
		func() (engine.Trial, error) { return s.trial(elements) })
}

// trial returns a trial that compares the kernel of the subject's program with graph operations,
// for tensors with the given number of elements.
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
	typed := func(in []*graph.Node) []*graph.Node { // all inputs are uploaded as floats
		in = slices.Clone(in)
		for i, input := range p.Inputs {
			in[i] = graph.ConvertDType(in[i], dtypeOf(input.Type.DType))
		}
		return in
	}
	return engine.Trial{
		Inputs: randomInputs(p),
		Fused: func(g *graph.Graph, in []*graph.Node) (list []*graph.Node) {
			out, ok := kernelOf(g, p, rows, s.Largest, typed(in), s.Stored)
			if !ok {
				panic(errors.New("the trial fits no kernel"))
			}
			for _, o := range p.Outputs {
				list = append(list, s.Stored.store(o.Name, out[o.Name]))
			}
			return list
		},
		Plain: func(g *graph.Graph, in []*graph.Node) []*graph.Node {
			return Outputs(g, p, typed(in))
		},
		Compare: compareCodes,
	}, nil
}

// randomInputs returns normally distributed floats; integer inputs are column indices of the first
// input. At most 2¹⁸ + 3 numbers are drawn and then repeated.
func randomInputs(p *program.Program) (list []engine.Input) {
	const most = 1<<18 + 3 // so that rows differ
	rng := rand.New(rand.NewPCG(1, 2))
	first := p.Inputs[0].Type.Shape
	for _, in := range p.Inputs {
		s := shapes.Make(shapes.Float32, in.Type.Shape...)
		some := make([]float32, min(s.Size(), most))
		for i := range some {
			if some[i] = float32(rng.NormFloat64()); in.Type.DType == program.Int {
				some[i] = float32(rng.IntN(first[len(first)-1]))
			}
		}
		data := slices.Repeat(some, s.Size()/len(some)+1)[:s.Size()]
		list = append(list, engine.Input{Spec: engine.Spec{Name: in.Name, Shape: s}, Data: data})
	}
	return list
}

// compareCodes returns an error if the outputs of a kernel differ too much from those of the graph.
// A few values may differ by a whole code, because a value halfway between two codes can be rounded
// to either; all others may differ only by the rounding to bfloat16.
func compareCodes(fused, plain [][]float32) error {
	const most, tolerance = 0.01, 1.0 / 64
	for i, values := range plain {
		if !slices.ContainsFunc(values, func(x float32) bool { return x != 0 }) {
			return errors.New("an output of the graph has only zeros")
		}
		differing := 0
		for j, x := range values {
			want := float64(x)
			if !(math.Abs(float64(fused[i][j])-want) <= tolerance*math.Abs(want)) {
				differing++
			}
		}
		if share := float64(differing) / float64(len(values)); share > most {
			return fmt.Errorf("%.2g of the values of a kernel differ from those of the graph: "+
				"want at most %g", share, most)
		}
	}
	return nil
}
