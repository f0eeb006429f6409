// Command smoothquant is SmoothQuant: outliers in a few columns of an activation are moved into the
// weight that it is multiplied with, where they do less harm. Both operands of a product x·Wᵀ have
// the same factors, one for each column that it sums over, from the largest magnitudes of the first
// batch:
//
//	s_j  = max|x_j|^α / max|W_j|^(1−α)
//	Q(x) = R(x/s)·s,   Q(W) = R(W·s)/s
//
// where R rounds to integers with one scale for each row, that is for each token and each output
// channel, or for the whole tensor. Where several weights have one activation, max|W_j| is that of
// all. The product of the two is that of R(x/s) and R(W·s), whatever s.
//
// The factors stay as they are. In published models x/s is a part of the norm in front of the
// layer, and only W·s is stored; here values are given in the units of x and W, without codes.
// (Xiao et al., "SmoothQuant: Accurate and Efficient Post-Training Quantization for Large Language
// Models", 2022, arXiv 2211.10438; smooth_ln_fcs and fake_quant.py of the authors' code.)
package main

import (
	"math"

	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program"
)

type smoothquant struct{}

var (
	_ sdk.Quantizer = smoothquant{}
	_ sdk.Stateful  = smoothquant{}
)

func (smoothquant) Describe() sdk.Description {
	return sdk.Description{
		Name:    "smoothquant",
		Version: "1.0.0",
		Doc: "SmoothQuant (Xiao et al. 2022): integers, after outliers of activations have been " +
			"moved into weights.",
		Parameters: []sdk.Parameter{
			sdk.Int("bits", 8, 2, 8, "bits of a code"),
			sdk.Float("alpha", 0.5, 0, 1,
				"how much moves into the weight: 0 is nothing that the activation says, 1 is all"),
			sdk.Choice("granularity", "row", []string{"row", "tensor"},
				"what has a scale: a row (a token, an output channel) or the tensor"),
		},
	}
}

// smooth is the name of the state: the factors of the columns. least is what the authors' code
// takes for 0.
const (
	smooth = "smooth"
	least  = 1e-5
)

// InitState writes the factors.
func (smoothquant) InitState(
	b *program.Builder, _ program.Value, site sdk.Site,
) (sdk.State, error) {
	if site.Role != sdk.RoleActivation && site.Role != sdk.RoleWeight {
		return nil, sdk.Refuse("a %s is not multiplied with a weight: SmoothQuant is for activations "+
			"of layers and their weights", site.Role)
	}
	alpha, zero := site.Float("alpha"), b.Const(least)
	x, w := site.Activations.Max, site.Weights.Max.Max(zero)
	return sdk.State{smooth: x.Pow(b.Const(alpha)).Div(w.Pow(b.Const(1 - alpha))).Max(zero)}, nil
}

// Quantize writes Q(x) for a weight or activation.
func (smoothquant) Quantize(
	b *program.Builder, x program.Value, site sdk.Site,
) (sdk.Quantized, error) {
	s := site.State[smooth]
	value := round(b, x.Mul(s), site).Div(s)
	if site.Role == sdk.RoleActivation {
		value = round(b, x.Div(s), site).Mul(s)
	}
	return sdk.Quantized{Value: value, Next: site.State}, nil
}

// round writes R.
func round(b *program.Builder, x program.Value, site sdk.Site) program.Value {
	largest := x.Abs().MaxRow()
	if site.Text("granularity") == "tensor" {
		largest = x.Abs().MaxAll()
	}
	top := math.Exp2(float64(site.Int("bits")-1)) - 1
	// XLA divides by s·scale instead of by s and scale, so that their product must not become 0.
	scale := largest.Div(b.Const(top)).Max(b.Const(0x1p-100))
	scale = largest.IsFinite().Select(scale, b.Const(math.NaN()))
	return x.Div(scale).Round().Mul(scale)
}

func main() { sdk.ServeQuantizer(smoothquant{}) }
