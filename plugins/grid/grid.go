// Command grid is the simplest quantizer plugin: it rounds, to nearest or down, to a grid with a
// fixed step that does not depend on the data. It is meant for problems with closed-form solutions,
// such as minimising ½(x − ½)² over the integers with Q = floor.
package main

import (
	"math"

	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program"
)

type grid struct{}

var _ sdk.Quantizer = grid{}

// Values of the rounding parameter.
const (
	roundNearest = "nearest"
	roundFloor   = "floor"
)

// Describe declares the parameters.
func (grid) Describe() sdk.Description {
	return sdk.Description{
		Name:    "grid",
		Version: "1.0.0",
		Doc:     "A grid with a fixed step, the same for all data; plain straight-through gradient.",
		Parameters: []sdk.Parameter{
			sdk.Float("step", 1, 1e-6, 1e6, "distance δ of adjacent values"),
			sdk.Choice("rounding", roundNearest, []string{roundNearest, roundFloor},
				"nearest: to the nearest value, ties to the even code; floor: to the next value below"),
			sdk.Int("bits", 0, 0, 16, "bits of a code, −2^(b−1) … 2^(b−1)−1; 0: the grid has no end"),
		},
		Claims: []sdk.Claim{
			{Name: sdk.ClaimIdempotent, When: map[string]any{"rounding": roundNearest}},
			{Name: sdk.ClaimAnyRounding, When: map[string]any{"rounding": roundFloor}},
		},
	}
}

// Quantize writes Q(x) = δ·round(x/δ). Elements are independent: an element that is not finite
// becomes NaN and affects no others. Codes cannot represent such elements, so the plugin is not a
// Packer.
func (grid) Quantize(b *program.Builder, x program.Value, site sdk.Site) (sdk.Quantized, error) {
	step := b.Const(site.Float("step"))
	codes := x.Div(step)
	if site.Text("rounding") == roundFloor {
		codes = codes.Floor()
	} else {
		codes = codes.Round()
	}
	var declared sdk.Grid // undeclared if unbounded: the codes depend on the tensor
	if bits := site.Int("bits"); bits > 0 {
		half := math.Ldexp(1, bits-1)
		codes = codes.Clip(-half, half-1)
		declared = sdk.Integers(-int(half), int(half)-1, 0)
	}
	finite := x.IsFinite()
	return sdk.Quantized{
		Value:     finite.Select(codes.Mul(step), b.Const(math.NaN())),
		Surrogate: finite.Select(x, b.Const(0)),
		Codes:     finite.Select(codes, b.Const(0)),
		Scale:     step,
		Grid:      declared,
		Mask:      finite,
	}, nil
}

func main() { sdk.ServeQuantizer(grid{}) }
