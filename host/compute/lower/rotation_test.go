package lower_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"

	"github.com/cage-qat/cage/host/compute/device"
	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/compute/lower"
	"github.com/cage-qat/cage/internal/testing/testdevice"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/reference"
	"github.com/cage-qat/cage/sdk/spec"
)

// learned rounds to a trained step in a rotated domain; the step's gradient is that of
// the values beyond the largest code.
func learned(block int, shape ...int) func(b *program.Builder) {
	return func(b *program.Builder) {
		x, step := b.Input(spec.InputX, program.FloatType(shape...)), b.Input(spec.TrainedPrefix+"step", program.FloatType())
		z := x.Hadamard(block)
		r := z.Div(step)
		q := r.Round().Clip(-2, 2)
		b.Output(spec.OutputValue, q.Mul(step).Hadamard(block))
		b.Output(spec.OutputSurrogate, r.Abs().Le(b.Const(2.5)).Select(z, q.StopGradient().Mul(step)).Hadamard(block))
	}
}

// straight rounds in a rotated domain and passes gradients straight through: its
// backward pass has no rotation to save.
func straight(block int, shape ...int) func(b *program.Builder) {
	return func(b *program.Builder) {
		x := b.Input(spec.InputX, program.FloatType(shape...))
		b.Output(spec.OutputValue, x.Hadamard(block).Scale(4).Round().Scale(0.25).Hadamard(block))
		b.Output(spec.OutputSurrogate, x)
	}
}

// rotating prepares a program's quantizer.
func rotating(t *testing.T, write func(b *program.Builder), trained ...spec.Tensor) lower.Quantizer {
	t.Helper()
	q, err := lower.NewQuantizer(spec.Quantizer{Program: build(t, write), Trained: trained})
	if err != nil {
		t.Fatal(err)
	}
	return q
}

func keepRotated(t *testing.T, q lower.Quantizer) *lower.Rotated {
	t.Helper()
	u, err := q.KeepRotated()
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// TestKeepRotated: which rotation is left out, and how many that saves.
func TestKeepRotated(t *testing.T) {
	step := spec.Tensor{Name: "step", Shape: []int{}}
	_, pushing := own(t, 64, 12, 192)
	for name, c := range map[string]struct {
		q     lower.Quantizer
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
			t.Errorf("%s: a rotation of %d, saving %v, want %d and %v", name, u.Block, u.Saved, c.block, c.saved)
		}
		if again := keepRotated(t, u.Quantizer); again != nil {
			t.Errorf("%s: what is left ends in a rotation of %d", name, again.Block)
		}
		if len(u.Trained()) != len(c.q.Trained()) {
			t.Errorf("%s: trained parameters are lost", name)
		}
	}
}

// hadamard rotates back what has been left rotated.
func hadamard(x *graph.Node, block int) *graph.Node {
	b := program.NewBuilder("rotation")
	b.Output("z", b.Input("x", program.FloatType(x.Shape().Dimensions...)).Hadamard(block))
	p, err := b.Build()
	if err != nil {
		panic(err)
	}
	return lower.Lower(x.Graph(), p, []*graph.Node{x})["z"]
}

// TestRestored: rotated back, the value is Q(x) to the last bit, what is not finite
// included.
func TestRestored(t *testing.T) {
	x := normal(3, 6, 192)
	for i := range 192 {
		x.Floats[192+i] = 0
	}
	x.Floats[2*192+5] = nan
	x.Floats[3*192+6] = inf
	q := rotating(t, quest(64, 6, 192))
	u := keepRotated(t, q)
	got := execute(t, []*engine.Buffer{upload(t, dtypes.Float32, x)}, func(_ *graph.Graph, in []*graph.Node) []*graph.Node {
		full, _ := q.Forward(in[0], lower.Given{})
		half, _ := u.Forward(in[0], lower.Given{})
		return []*graph.Node{hadamard(half, u.Block), full}
	})
	sameBits(t, testdevice.Download[float32](t, got[0]), testdevice.Download[float32](t, got[1]))
}

// TestProducts compares a product of two quantized matrices, and its gradients on both
// and on a trained step, with operands rotated back and left rotated.
//
// A sum of n products errs by at most n·2⁻²⁴ of the norms of its factors, and rotating
// 64 elements by 64·√64·2⁻²⁴ of theirs; with the two rotations of each operand that is
// 1e-4 of the norms in the worst case. Errors average out: a hundredth is asked for.
func TestProducts(t *testing.T) {
	const tokens, out, in = 12, 40, 192
	step := spec.Tensor{Name: "step", Shape: []int{}}
	_, pushing := own(t, 64, tokens, in)
	for name, c := range map[string]struct{ x, w lower.Quantizer }{
		"quest":            {rotating(t, quest(64, tokens, in)), rotating(t, quest(64, out, in))},
		"learned":          {rotating(t, learned(64, tokens, in), step), rotating(t, quest(64, out, in))},
		"its own backward": {pushing, rotating(t, quest(64, out, in))},
		"straight through": {rotating(t, straight(64, tokens, in)), rotating(t, straight(64, out, in))},
	} {
		t.Run(name, func(t *testing.T) {
			full := product(t, c.x, c.w, tokens, out, in)
			half := product(t, keepRotated(t, c.x).Quantizer, keepRotated(t, c.w).Quantizer, tokens, out, in)
			for i, what := range []string{"product", "gradient on x", "gradient on w", "gradient on the step"} {
				if i == len(full) {
					break
				}
				largest := 0.0
				for _, v := range full[i] {
					largest = max(largest, math.Abs(float64(v)))
				}
				for j, v := range full[i] {
					if d := math.Abs(float64(half[i][j]) - float64(v)); !(d <= 1e-6*largest) || largest == 0 {
						t.Fatalf("%s: element %d is %v, rotated back %v; the largest is %v", what, j, half[i][j], v, largest)
					}
				}
			}
		})
	}
}

// product is Q(x)·Q(w)ᵀ for random matrices, with its gradients for a random one.
func product(t *testing.T, qx, qw lower.Quantizer, tokens, out, in int) [][]float32 {
	t.Helper()
	inputs := []reference.Tensor{normal(1, tokens, in), normal(2, out, in), normal(3, tokens, out), reference.Float(0.4)}
	var buffers []*engine.Buffer
	for _, i := range inputs {
		buffers = append(buffers, upload(t, dtypes.Float32, i))
	}
	return testdevice.Evaluate(t, shared(t), buffers, func(_ *graph.Graph, in []*graph.Node) []*graph.Node {
		trained := in[3 : 3+len(qx.Trained())]
		y := graph.DotGeneral(lower.Quantize(in[0], lower.Given{Trained: trained}, qx), []int{1}, nil, lower.Quantize(in[1], lower.Given{}, qw), []int{1}, nil)
		wrt := append([]*graph.Node{in[0], in[1]}, trained...)
		return append([]*graph.Node{y}, graph.Gradient(graph.ReduceAllSum(graph.Mul(y, in[2])), wrt...)...)
	})
}

// rotateInBFloat16 rotates x as on a GPU in bfloat16.
func rotateInBFloat16(t *testing.T, x []float32, block int) []float32 {
	t.Helper()
	d := testdevice.Open(t, engine.Options{Precision: device.BFloat16})
	p := build(t, func(b *program.Builder) { b.Output("y", b.Input("x", program.FloatType(len(x))).Hadamard(block)) })
	return testdevice.Evaluate(t, d, []*engine.Buffer{testdevice.Upload(t, d, x, len(x))}, func(g *graph.Graph, in []*graph.Node) []*graph.Node {
		return []*graph.Node{lower.LowerPlain(g, p, in, false)["y"]}
	})[0]
}

// TestSplitRotation bounds the error of a rotation in two halves: an element, or a sum of some, loses at most 2⁻¹⁷ of itself, and
// a rotation keeps lengths. The rest is the rounding of float32.
func TestSplitRotation(t *testing.T) {
	const rounding = 0x1p-21
	rng := rand.New(rand.NewPCG(1, 2))
	for _, block := range []int{2, 16, 64, 128, 256, 512, 1024, 4096} {
		x := make([]float32, 2*4096)
		for i := range x {
			x[i] = float32(rng.NormFloat64() * math.Exp(3*rng.NormFloat64()))
		}
		want, err := reference.Run(build(t, func(b *program.Builder) {
			b.Output("y", b.Input("x", program.FloatType(len(x))).Hadamard(block))
		}), map[string]reference.Tensor{"x": reference.Floats(convert(x, func(v float32) float64 { return float64(v) }), len(x))})
		if err != nil {
			t.Fatal(err)
		}
		got := rotateInBFloat16(t, x, block)
		var total, length float64
		for run := 0; run < len(x); run += block {
			var e, n float64
			for i := run; i < run+block; i++ {
				e += math.Pow(float64(got[i])-want["y"].Floats[i], 2)
				n += float64(x[i]) * float64(x[i])
			}
			if relative := math.Sqrt(e / n); relative > 0x1p-17+rounding {
				t.Errorf("block %d at %d: the error is %.3g of the length", block, run, relative)
			}
			total, length = total+e, length+n
		}
		// On a GPU XLA may keep more of the lower half. Here a smaller error would mean that this is not what runs there.
		if relative := math.Sqrt(total / length); testdevice.Kind() == device.CPU && relative < rounding {
			t.Errorf("block %d: the error is %.3g of the length, as if it were computed in float32", block, relative)
		}
	}
}

// TestSplitRotationIsExact rotates whole numbers by blocks whose norm is a power of two: of 16 bits, and fewer where some
// are added up before the product.
func TestSplitRotationIsExact(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for _, block := range []int{4, 64, 256, 1024} {
		x := make([]float32, 2*block)
		for i := range x {
			limit := 1 << 16 / max(1, block/256)
			x[i] = float32(rng.IntN(2*limit) - limit)
		}
		for i, y := range rotateInBFloat16(t, x, block) {
			sum := 0.0
			for j, w := range x[i/block*block:][:block] {
				sum += float64(w) * sign(i%block&j)
			}
			if want := sum / math.Sqrt(float64(block)); float64(y) != want {
				t.Fatalf("block %d: element %d is %v, want %v", block, i, y, want)
			}
		}
	}
}

// sign is −1 for an odd number of bits.
func sign(bits int) float64 {
	s := 1.0
	for ; bits > 0; bits &= bits - 1 {
		s = -s
	}
	return s
}

func TestSplitRotationKeepsWhatIsNotFinite(t *testing.T) {
	for _, value := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
		x := make([]float32, 256)
		for i := range x {
			x[i] = float32(i)
		}
		x[5] = float32(value)
		for i, y := range rotateInBFloat16(t, x, 128) {
			if finite := !math.IsNaN(float64(y)) && !math.IsInf(float64(y), 0); finite != (i >= 128) {
				t.Fatalf("%v in the first block: element %d is %v", value, i, y)
			}
		}
	}
}

// TestRotationsByKernels: rotations of rows of any number of axes are kernels where they are asked for, with the values of products.
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
		var kernels map[string]engine.Kernel
		out, err := d.Evaluate("rotations", []engine.Input{{Spec: engine.Spec{Name: "x", Shape: shapes.Make(dtypes.Float32, shape...)}, Data: data}},
			func(g *graph.Graph, in []*graph.Node) []*graph.Node {
				y := []*graph.Node{lower.WithKernels(g, p, in)["y"], lower.Lower(g, p, in)["y"]}
				kernels = engine.KernelsIn(g)
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
		if len(kernels) != 1 || kernels["kernel_0"].Name != "cage_rotation_rows" {
			t.Errorf("%v: there are the kernels %v, want one of the rotation", shape, kernels)
		}
	}
}
