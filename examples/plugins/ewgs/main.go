// Command ewgs trains an interval, rounds what lies in it to an even grid and scales each gradient
// by the error of its rounding and by its own sign: a step towards the other side of a boundary
// becomes longer, a step away from it shorter (Lee, Kim and Ham 2021, "Network Quantization with
// Element-wise Gradient Scaling", 2104.00903). No surrogate has such a gradient, so the plugin has
// a backward pass of its own.
//
// The paper's quantized activations lie in [0, 1] and its weights in [−1, 1], with a trained scale
// for the output of each layer. Here the interval itself takes the place of that scale, for both,
// and it is given by its lower end and its width.
package main

import (
	"math"

	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program"
)

type ewgs struct{}

func (ewgs) Describe() sdk.Description {
	return sdk.Description{
		Name:    "ewgs",
		Version: "1.0.0",
		Doc: "An even grid on a trained interval, and gradients that are scaled element by element " +
			"(Lee et al. 2021).",
		Parameters: []sdk.Parameter{
			sdk.Int("bits", 4, 1, 8, "bits of a code"),
			sdk.Float("delta", 1e-3, 0, 1, "how much the error of rounding changes a gradient, as a part "+
				"of it; 0 for the straight-through estimator"),
			sdk.Float("deviations", 3, 0.5, 10,
				"where the interval begins and ends at first, in standard deviations"),
		},
		Claims: []sdk.Claim{
			{Name: sdk.ClaimAnyZeroCode},
			{Name: sdk.ClaimScaleScope, Value: sdk.ScopeTensor},
		},
	}
}

// leastWidth keeps the interval from vanishing.
const leastWidth = 1e-8

// InitTrained takes the interval around zero.
func (ewgs) InitTrained(b *program.Builder, x program.Value, site sdk.Site) (sdk.State, error) {
	end := x.Sub(x.MeanAll()).Square().MeanAll().Sqrt().Scale(site.Float("deviations"))
	return sdk.State{"low": end.Neg(), "width": end.Scale(2).Max(b.Const(leastWidth))}, nil
}

// grid is where the elements of a tensor lie.
type grid struct {
	low, width     program.Value
	place          program.Value // 0 at the lower end of the interval and 1 at the upper
	clipped        program.Value
	codes, rounded program.Value // the code, and the place of its level
	finite, inside program.Value
}

func newGrid(b *program.Builder, x program.Value, site sdk.Site) grid {
	g := grid{low: site.Trained["low"], width: site.Trained["width"].Max(b.Const(leastWidth)),
		finite: x.IsFinite()}
	top := math.Exp2(float64(site.Int("bits"))) - 1
	g.place = g.finite.Select(x.Sub(g.low), b.Const(0)).Div(g.width)
	g.clipped = g.place.Clip(0, 1)
	g.inside = g.finite.And(g.place.Eq(g.clipped))
	g.codes = g.clipped.Scale(top).Round()
	g.rounded = g.codes.Div(b.Const(top))
	return g
}

// Quantize writes Q(x) for one weight or activation.
func (ewgs) Quantize(b *program.Builder, x program.Value, site sdk.Site) (sdk.Quantized, error) {
	g := newGrid(b, x, site)
	return sdk.Quantized{
		Value: g.finite.Select(g.rounded.Mul(g.width).Add(g.low), b.Const(math.NaN())),
		Codes: g.codes,
		Mask:  g.inside,
	}, nil
}

// Backward writes the program of the gradients. The gradient through rounding is
// dy·(1 + δ·sign(dy)·(place − rounded)); clipping and the ends of the interval have their ordinary
// derivatives.
func (ewgs) Backward(
	b *program.Builder, x, dy program.Value, site sdk.Site,
) (sdk.Gradients, error) {
	g := newGrid(b, x, site)
	zero := b.Const(0)
	dy = g.finite.Select(dy, zero)
	error := g.clipped.Sub(g.rounded).Scale(site.Float("delta"))
	dx := g.inside.Select(dy.Mul(dy.Sign().Mul(error).Shift(1)), zero)
	return sdk.Gradients{X: dx, Trained: sdk.State{
		"low":   dy.Sub(dx).SumAll(),
		"width": dy.Mul(g.rounded).Sub(dx.Mul(g.place)).SumAll(),
	}}, nil
}

func main() { sdk.ServeQuantizer(ewgs{}) }
