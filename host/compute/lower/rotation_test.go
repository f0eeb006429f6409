package lower_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/cage-qat/cage/host/compute/device"
	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/compute/fakequant"
	"github.com/cage-qat/cage/host/compute/graph"
	"github.com/cage-qat/cage/host/compute/lower"
	"github.com/cage-qat/cage/host/compute/shapes"
	"github.com/cage-qat/cage/host/compute/triton"
	"github.com/cage-qat/cage/host/testing/testdevice"
	"github.com/cage-qat/cage/host/testing/testquantizer"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/reference"
	"github.com/cage-qat/cage/sdk/spec"
)

// learned writes a quantizer of rotated rows to multiples of a trained step. Only values beyond the
// largest code contribute to the step's gradient.
func learned(block int, shape ...int) func(b *program.Builder) {
	return func(b *program.Builder) {
		x, step := b.Input(spec.InputX, program.FloatType(shape...)),
			b.Input(spec.TrainedPrefix+"step", program.FloatType())
		z := x.Hadamard(block)
		r := z.Div(step)
		q := r.Round().Clip(-2, 2)
		b.Output(spec.OutputValue, q.Mul(step).Hadamard(block))
		b.Output(spec.OutputSurrogate, r.Abs().Le(b.Const(2.5)).Select(z, q.StopGradient().Mul(step)).
			Hadamard(block))
	}
}

// straight writes a quantizer of rotated rows with the identity as its surrogate: its backward pass
// has no rotation to save.
func straight(block int, shape ...int) func(b *program.Builder) {
	return func(b *program.Builder) {
		x := b.Input(spec.InputX, program.FloatType(shape...))
		b.Output(spec.OutputValue, x.Hadamard(block).Scale(4).Round().Scale(0.25).Hadamard(block))
		b.Output(spec.OutputSurrogate, x)
	}
}

// rotating returns the quantizer of a program.
func rotating(
	t *testing.T, write func(b *program.Builder), trained ...spec.Tensor,
) *fakequant.Quantizer {
	t.Helper()
	q, err := fakequant.New(spec.Quantizer{Program: build(t, write), Trained: trained})
	if err != nil {
		t.Fatal(err)
	}
	return q
}

func keepRotated(t *testing.T, q *fakequant.Quantizer) *fakequant.Rotated {
	t.Helper()
	u, err := q.KeepRotated()
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// TestKeepRotated checks which rotation is left out, and how many rotations that saves.
func TestKeepRotated(t *testing.T) {
	step := spec.Tensor{Name: "step", Shape: []int{}}
	_, pushing := own(t, 64, 12, 192)
	for name, c := range map[string]struct {
		q     *fakequant.Quantizer
		block int // 0: there is none
		saved float64
	}{
		"quest":            {rotating(t, quest(64, 12, 192)), 64, 2},
		"learned":          {rotating(t, learned(16, 12, 192), step), 16, 2},
		"straight through": {rotating(t, straight(64, 12, 192)), 64, 0},
		"its own backward": {pushing, 64, 2},
		"no rotation":      {rotating(t, squareSurrogate(12, 192)), 0, 0},
	} {
		u := keepRotated(t, c.q)
		switch {
		case u == nil:
			if c.block != 0 {
				t.Errorf("%s: no rotation found", name)
			}
			continue
		case u.Block != c.block || u.Saved != c.saved:
			t.Errorf("%s: a rotation of %d, saving %v, want %d and %v", name, u.Block, u.Saved, c.block,
				c.saved)
		}
		if again := keepRotated(t, u.Quantizer); again != nil {
			t.Errorf("%s: what is left ends in a rotation of %d", name, again.Block)
		}
		if len(u.Quantizer.Trained()) != len(c.q.Trained()) {
			t.Errorf("%s: trained parameters are lost", name)
		}
	}
}

// TestRestored checks that the value, rotated back, has the bits of Q(x), also if it is not finite.
func TestRestored(t *testing.T) {
	x := normal(3, 6, 192)
	for i := range 192 {
		x.Floats[192+i] = 0
	}
	x.Floats[2*192+5] = nan
	x.Floats[3*192+6] = inf
	q := rotating(t, quest(64, 6, 192))
	u := keepRotated(t, q)
	got := execute(t, []*engine.Buffer{upload(t, x)},
		func(_ *graph.Graph, in []*graph.Node) []*graph.Node {
			return testquantizer.Lower(in, func(in []program.Value) []program.Value {
				full, _, _ := q.Forward(in[0], fakequant.Given{}, false)
				half, _, _ := u.Quantizer.Forward(in[0], fakequant.Given{}, false)
				return []program.Value{half.Hadamard(u.Block), full}
			})
		})
	sameBits(t, testdevice.Download[float32](t, got[0]), testdevice.Download[float32](t, got[1]))
}

// TestProducts compares a product of two quantized matrices, and its gradients with respect to both
// and to a trained step, with operands rotated back and left rotated.
//
// The error of a sum of n products is at most n·2⁻²⁴ times the norms of its factors, and that of a
// rotation of 64 elements at most 64·√64·2⁻²⁴ times their norm. With two rotations of each operand,
// that is 1e-4 of the norms in the worst case. Because errors average out, the tolerance is a
// hundredth of it.
func TestProducts(t *testing.T) {
	const tokens, out, in = 12, 40, 192
	step := spec.Tensor{Name: "step", Shape: []int{}}
	_, pushing := own(t, 64, tokens, in)
	for name, c := range map[string]struct{ x, w *fakequant.Quantizer }{
		"quest":            {rotating(t, quest(64, tokens, in)), rotating(t, quest(64, out, in))},
		"learned":          {rotating(t, learned(64, tokens, in), step), rotating(t, quest(64, out, in))},
		"its own backward": {pushing, rotating(t, quest(64, out, in))},
		"straight through": {rotating(t, straight(64, tokens, in)), rotating(t, straight(64, out, in))},
	} {
		t.Run(name, func(t *testing.T) {
			full := product(t, c.x, c.w, tokens, out, in)
			half := product(t, keepRotated(t, c.x).Quantizer, keepRotated(t, c.w).Quantizer, tokens, out, in)
			for i, what := range []string{"product", "gradient on x", "gradient on w",
				"gradient on the step"} {
				if i == len(full) {
					break
				}
				largest := 0.0
				for _, v := range full[i] {
					largest = max(largest, math.Abs(float64(v)))
				}
				for j, v := range full[i] {
					if d := math.Abs(float64(half[i][j]) - float64(v)); !(d <= 1e-6*largest) || largest == 0 {
						t.Fatalf("%s: element %d is %v, rotated back %v; the largest is %v", what, j, half[i][j], v,
							largest)
					}
				}
			}
		})
	}
}

// product returns Q(x)·Q(w)ᵀ for random matrices, and its gradients for a random adjoint.
func product(t *testing.T, qx, qw *fakequant.Quantizer, tokens, out, in int) [][]float32 {
	t.Helper()
	inputs := []reference.Tensor{normal(1, tokens, in), normal(2, out, in), normal(3, tokens, out),
		reference.Float(0.4)}
	var buffers []*engine.Buffer
	for _, i := range inputs {
		buffers = append(buffers, upload(t, i))
	}
	return testdevice.Evaluate(t, shared(t), buffers,
		func(_ *graph.Graph, in []*graph.Node) []*graph.Node {
			trained := in[3 : 3+len(qx.Trained())]
			a, aBack := testquantizer.Quantize(in[0], testquantizer.Given{Trained: trained}, qx)
			b, bBack := testquantizer.Quantize(in[1], testquantizer.Given{}, qw)
			y := engine.ExactDot(a, []int{1}, nil, b, []int{1}, nil)
			da := aBack(engine.ExactDot(in[2], []int{1}, nil, b, []int{0}, nil))
			db := bBack(engine.ExactDot(in[2], []int{0}, nil, a, []int{0}, nil))
			return slices.Concat([]*graph.Node{y, da[0], db[0]}, da[1:])
		})
}

// TestRotationsByKernels checks that Calls rotate rows, in tensors of two and three axes, by
// one kernel, with the values of graph operations.
func TestRotationsByKernels(t *testing.T) {
	for _, shape := range [][]int{{16, 384}, {2, 8, 256}} {
		d := testdevice.Open(t, engine.Options{Precision: device.BFloat16, Kernels: device.BodyKernels})
		p := build(t, func(b *program.Builder) {
			b.Output("y", b.Input("x", program.FloatType(shape...)).Scale(3).Hadamard(128))
		})
		data, rng := make([]float32, p.Inputs[0].Type.Size()), rand.New(rand.NewPCG(2, 37))
		for i := range data {
			data[i] = float32(rng.NormFloat64())
		}
		var kernels []triton.Kernel
		out, err := d.Evaluate("rotations",
			[]engine.Input{{Spec: engine.Spec{Name: "x", Shape: shapes.Make(shapes.Float32, shape...)},
				Data: data}},
			func(g *graph.Graph, in []*graph.Node) []*graph.Node {
				y := []*graph.Node{lower.Calls{}.Lower(g, p, in, "")["y"], lower.Lower(g, p, in)["y"]}
				kernels = lower.KernelsIn(g)
				return y
			})
		if err != nil {
			t.Fatal(err)
		}
		for i, want := range out[1] {
			if diff := math.Abs(float64(out[0][i] - want)); !(diff <= 1e-5) {
				t.Fatalf("%v: number %d is %v, want %v", shape, i, out[0][i], want)
			}
		}
		if len(kernels) != 1 || kernels[0].Name != "cage_rotation_rows" {
			t.Errorf("%v: there are the kernels %v, want one of the rotation", shape, kernels)
		}
	}
}
