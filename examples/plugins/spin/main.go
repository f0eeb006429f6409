// Command spin rotates each block of a row with a learned orthogonal matrix R before it rounds, and
// rotates back after it:
//
//	Q(x) = round(xR / s)·s·Rᵀ,  s = max|xR| / (2^(b−1) − 1) for each row
//
// as SpinQuant does (Liu et al., "SpinQuant: LLM quantization with learned rotations", 2405.16406).
// All weights and activations share R, which starts as a Hadamard matrix. After each update R
// becomes the nearest orthogonal matrix. SpinQuant trains R alone, by steps on the manifold (Cayley
// SGD); here it is trained with the weights, by their optimizer.
package main

import (
	"fmt"
	"math"

	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program"
)

type spin struct{}

func (spin) Describe() sdk.Description {
	return sdk.Description{
		Name:    "spin",
		Version: "1.0.0",
		Doc: "Integers with one scale for each row, after a learned rotation that all sites share " +
			"(SpinQuant, Liu et al. 2024).",
		Parameters: []sdk.Parameter{
			sdk.Int("bits", 4, 2, 8, "bits of a code, with its sign"),
			sdk.Choice("share", "model", []string{"model", "layer"},
				"which sites have one R: those of the whole model, or those of each transformer block"),
			sdk.Int("block", 32, 2, 1024,
				"size of the blocks of a row that R rotates, a power of two that divides every row"),
		},
	}
}

const rotation = "rotation"

// InitTrained starts R as the normalized Hadamard matrix.
func (spin) InitTrained(b *program.Builder, _ program.Value, site sdk.Site) (sdk.State, error) {
	block := site.Int("block")
	if block&(block-1) != 0 {
		return nil, sdk.Refuse("block = %d is no power of two", block)
	}
	if site.RowLen()%block != 0 {
		return nil, sdk.Refuse("rows of %d cannot be cut into blocks of %d", site.RowLen(), block)
	}
	return sdk.State{rotation: identity(b, block).Hadamard(block)}, nil
}

// Shared gives all sites the same R, or those of one block.
func (spin) Shared(_ string, site sdk.Site) string {
	if site.Text("share") == "layer" && site.Layer >= 0 {
		return fmt.Sprintf("spin.%d.layer.%d", site.Int("block"), site.Layer)
	}
	return fmt.Sprintf("spin.%d", site.Int("block"))
}

// newtonSteps are enough to make a matrix whose singular values are 0.03 to 1 orthogonal in
// binary32.
const newtonSteps = 12

// Constrain is the orthogonal matrix nearest to v, the factor U of its polar decomposition v = U·P,
// by Newton's and Schulz's iteration. It converges if no singular value is above √3 and none is 0.
// The first division sees to the former: the largest sum of magnitudes in a row of vᵀv bounds their
// squares.
func (spin) Constrain(
	b *program.Builder, _ string, v program.Value, _ sdk.Site,
) (program.Value, error) {
	bound := square(v).Abs().SumRow().MaxAll().Sqrt()
	v = v.Div(bound.Max(b.Const(1)))
	for range newtonSteps {
		v = v.Scale(1.5).Sub(v.MatMul(square(v)).Scale(0.5))
	}
	return v, nil
}

// square is vᵀv.
func square(v program.Value) program.Value { return v.Transpose(1, 0).MatMul(v) }

// identity is the identity matrix of order n.
func identity(b *program.Builder, n int) program.Value {
	t := program.FloatType(n, n)
	return b.Iota(t, 0).Eq(b.Iota(t, 1)).Select(b.Const(1), b.Const(0))
}

// Quantize writes Q(x). Its gradient passes the rounding unchanged, so that x gets that of Q(x),
// and R learns where the error of the rounding points to.
func (spin) Quantize(b *program.Builder, x program.Value, site sdk.Site) (sdk.Quantized, error) {
	top := float64(int(1)<<(site.Int("bits")-1) - 1)
	r := site.Trained[rotation]
	block := r.Shape()[0]
	rotated := rotate(x, r, block)
	largest := rotated.Abs().MaxRow()
	finite := largest.IsFinite() // otherwise the scale, and with it the row, becomes NaN
	scale := finite.Select(largest.Scale(1/top).Max(b.Const(0x1p-126)), b.Const(math.NaN()))
	codes := rotated.Div(scale).Round().Clip(-top, top)
	rounded := codes.Mul(scale)
	back := r.Transpose(1, 0)
	return sdk.Quantized{
		Value:     rotate(rounded, back, block),
		Surrogate: rotate(rotated.Add(rounded.Sub(rotated).StopGradient()), back, block),
		Codes:     finite.Select(codes, b.Const(0)),
		Scale:     scale,
		Grid:      sdk.Integers(-int(top), int(top), 0),
	}, nil
}

// rotate multiplies each block of each row with r.
func rotate(x, r program.Value, block int) program.Value {
	return x.Reshape(int(x.Type().Size())/block, block).MatMul(r).Reshape(x.Shape()...)
}

func main() { sdk.ServeQuantizer(spin{}) }
