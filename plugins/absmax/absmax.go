// Command absmax is the absolute-maximum quantizer as a plugin: the largest
// magnitude of a group of numbers fixes the scale, every number is rounded to the
// nearest level, and gradients pass unchanged. Applied once to trained weights it
// is round-to-nearest post-training quantization.
//
// Sources: UniformQuantizer of QuEST and Quartet (IST-DASLab) for the centred
// grid, the integer quantizer of FP-Quant (IST-DASLab) for the full grid,
// GPTQ (Frantar et al. 2022) for the grid of that name.
package main

import (
	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/microscaling"
	"github.com/cage-qat/cage/sdk/program"
)

// absmax implements [sdk.Quantizer].
type absmax struct{}

var (
	_ sdk.Quantizer = absmax{}
	_ sdk.Packer    = absmax{}
)

// The values of the parameters grid and granularity.
const (
	gridSymmetric = "symmetric"
	gridFull      = "full"
	gridCentred   = "centred"
	gridGPTQ      = "gptq"

	perTensor = "tensor"
	perRow    = "row"
	perGroup  = "group"
)

// Describe declares the parameters.
func (absmax) Describe() sdk.Description {
	return sdk.Description{
		Name:    "absmax",
		Version: "1.1.0",
		Doc:     "Absolute-maximum scaling and round to nearest, for each tensor, row or group; plain straight-through gradient.",
		Parameters: []sdk.Parameter{
			sdk.Int("bits", 4, 1, 8, "bits of a code; 1 bit needs the centred grid"),
			sdk.Choice("grid", gridSymmetric, []string{gridSymmetric, gridFull, gridCentred, gridGPTQ},
				"symmetric: integers with the maximum on the top code; full, gptq: all 2^b integers; centred: half-integers, no zero"),
			sdk.Choice("granularity", perRow, []string{perTensor, perRow, perGroup}, "what shares a scale"),
			sdk.Int("group", 128, 1, 1<<20, "granularity group: consecutive entries of a row that share a scale; the last group of a row may be shorter"),
			microscaling.ScaleParameter(),
		},
	}
}

// Quantize writes the program of one site.
func (absmax) Quantize(b *program.Builder, x program.Value, site sdk.Site) (sdk.Quantized, error) {
	levels, err := newLevels(site.Text("grid"), site.Int("bits"), microscaling.ScaleTypeOf(site))
	if err != nil {
		return sdk.Quantized{}, err
	}
	split := newGroups(site)
	grouped := split.apply(x)
	amax := split.max(grouped.Abs())
	finite := amax.IsFinite()
	value, codes, scale := levels.quantize(grouped, amax, finite)
	mask := finite.Broadcast(grouped.Shape(), nil)
	return sdk.Quantized{
		Value:       split.undo(value),
		Surrogate:   split.undo(finite.Select(grouped, b.Const(0))),
		Codes:       split.undo(finite.Select(codes, b.Const(0)).Convert(program.Int)),
		Scale:       scale,
		Mask:        split.undo(mask),
		Homogeneous: levels.offset == 0 && levels.scale == microscaling.ScaleF32,
	}, nil
}

// Unpack writes scale·codes group by group. On the centred grid codes are doubled levels
// and the scale is half a step; both are exact.
func (absmax) Unpack(_ *program.Builder, codes, scale program.Value, site sdk.Site) (program.Value, error) {
	split := newGroups(site)
	return split.undo(split.apply(codes.Convert(program.Float)).Mul(scale)), nil
}

func main() { sdk.ServeQuantizer(absmax{}) }
