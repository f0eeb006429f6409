package lower_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/gomlx/gomlx/core/graph"

	"github.com/cage-qat/cage/host/compute/device"
	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/compute/lower"
	"github.com/cage-qat/cage/host/internal/testdevice"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/reference"
)

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
