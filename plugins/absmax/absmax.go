// Command absmax implements the absolute-maximum quantizer as a plugin: the largest magnitude in a
// group of numbers sets the scale, every number is rounded to the nearest level, and gradients pass
// unchanged. Applied once to trained weights it is round-to-nearest post-training quantization.
//
// Sources: UniformQuantizer of QuEST and Quartet (IST-DASLab) for the centred grid, the integer
// quantizer of FP-Quant (IST-DASLab) for the full grid, GPTQ (Frantar et al. 2022) for the grid of
// that name.
package main

import (
	"math"

	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/microscaling"
	"github.com/cage-qat/cage/sdk/program"
)

type absmax struct{}

var (
	_ sdk.Quantizer = absmax{}
	_ sdk.Packer    = absmax{}
)

// Values of the grid and granularity parameters.
const (
	gridSymmetric = "symmetric"
	gridFull      = "full"
	gridCentred   = "centred"
	gridGPTQ      = "gptq"
	gridSigned    = "signed"

	perTensor = "tensor"
	perRow    = "row"
	perGroup  = "group"
)

// Describe declares the parameters.
func (absmax) Describe() sdk.Description {
	return sdk.Description{
		Name:    "absmax",
		Version: "1.1.0",
		Doc: "Absolute-maximum scaling and rounding to nearest, for each tensor, row or group; " +
			"plain straight-through gradient.",
		Parameters: []sdk.Parameter{
			sdk.Int("bits", 4, 1, 8, "bits of a code; 1 bit needs the centred grid"),
			sdk.Choice("grid", gridSymmetric,
				[]string{gridSymmetric, gridFull, gridCentred, gridGPTQ, gridSigned},
				"symmetric: integers with the maximum on the top code; full, gptq: all 2^b integers; "+
					"signed: all of them, and the number of largest magnitude has the code −2^(b−1), as in "+
					"llama.cpp's Q4_0, so that the scale has the other sign; centred: half-integers, no zero"),
			sdk.Choice("granularity", perRow, []string{perTensor, perRow, perGroup}, "what shares a scale"),
			sdk.Int("group", 128, 1, 1<<20, "granularity group: consecutive entries of a row that share a "+
				"scale; the last group of a row may be shorter"),
			microscaling.ScaleParameter(),
		},
		Claims: []sdk.Claim{
			// The maximum is on the top code, so a second quantization has the same scale.
			{Name: sdk.ClaimIdempotent, When: map[string]any{"grid": gridSymmetric}},
			{Name: sdk.ClaimIdempotent, When: map[string]any{"grid": gridSigned}},
			// x = −amax is a tie between two codes.
			{Name: sdk.ClaimTies, When: map[string]any{"grid": gridFull}},
			{Name: sdk.ClaimTies, When: map[string]any{"grid": gridGPTQ}},
		},
	}
}

// Quantize writes the program for one site.
func (absmax) Quantize(b *program.Builder, x program.Value, site sdk.Site) (sdk.Quantized, error) {
	levels, err := newLevels(site.Text("grid"), site.Int("bits"), microscaling.ScaleTypeOf(site))
	if err != nil {
		return sdk.Quantized{}, err
	}
	split := newGroups(site)
	grouped := split.apply(x)
	size := grouped.Abs()
	if site.Text("grid") == gridSigned && site.Text("granularity") == perTensor {
		return sdk.Quantized{}, sdk.Refuse("grid = %q has a scale for each row or group, not for a tensor",
			gridSigned)
	}
	var amax program.Value // one per group, or a scalar
	if site.Text("granularity") == perTensor {
		amax = size.MaxAll()
	} else {
		amax = size.MaxRow()
	}
	finite := amax.IsFinite()
	quantize := levels.quantize
	if site.Text("grid") == gridSigned {
		quantize = levels.signed
	}
	value, codes, scale := quantize(grouped, amax, finite)
	mask := finite.Broadcast(grouped.Shape(), nil)
	return sdk.Quantized{
		Value:       split.undo(value),
		Surrogate:   split.undo(finite.Select(grouped, b.Const(0))),
		Codes:       split.undo(finite.Select(codes, b.Const(0)).Convert(program.Int)),
		Scale:       scale,
		Grid:        levels.codes(split.declared),
		Mask:        split.undo(mask),
		Homogeneous: levels.offset == 0 && levels.scale == microscaling.ScaleF32,
	}, nil
}

// Unpack writes scale·codes group by group. On the centred grid codes are doubled levels
// and the scale is half a step; both conversions are exact.
func (absmax) Unpack(_ *program.Builder, codes, scale program.Value,
	site sdk.Site) (program.Value, error) {
	split := newGroups(site)
	return split.undo(split.apply(codes.Convert(program.Float)).Mul(scale)), nil
}

// groups reshapes a tensor so that the numbers that share a scale lie along the last axis. A tensor
// with a single scale, or one scale per row, is unchanged.
type groups struct {
	split    bool // a row has more than one group
	declared int  // the configured group size; 0: a row, or the whole tensor
	blocks   microscaling.Blocks
}

func newGroups(site sdk.Site) groups {
	size, declared := site.RowLen(), 0
	if site.Text("granularity") == perGroup {
		declared = site.Int("group")
		size = min(declared, size)
	}
	return groups{
		split:    size < site.RowLen(),
		declared: declared,
		blocks:   microscaling.NewBlocks(site.Shape, size),
	}
}

// apply splits off an axis for the groups: […,row] becomes […,n,size]. A shorter last group is
// padded with zeros, which never change its maximum.
func (g groups) apply(x program.Value) program.Value {
	if !g.split {
		return x
	}
	return g.blocks.Split(x)
}

func (g groups) undo(v program.Value) program.Value {
	if !g.split {
		return v
	}
	return g.blocks.Join(v)
}

// centredEps is added to the maximum by the published centred quantizer.
const centredEps = 1e-8

// smallest is the smallest normal binary32 number. With a smaller scale, x/s might be off the grid,
// so the group is treated as zero.
const smallest = 0x1p-126

// levels is a grid in units of its step s: integers, or half-integers if the grid is centred.
//
//	symmetric   s = amax/(2^(b−1)−1)      q = round(x/s) in ±(2^(b−1)−1)
//	full, gptq  s = amax/(2^b−1)·2        q = round(x/s) in −2^(b−1) … 2^(b−1)−1
//	centred     s = (amax+1e-8)/(2^b−1)·2 q = round(x/s + ½) − ½
//	signed      s = −m/2^(b−1)            q = ⌊x/s + ½⌋ in −2^(b−1) … 2^(b−1)−1
//
// m is the first number with the largest magnitude in its group.
type levels struct {
	top    float64 // ratio of the maximum to the step
	offset float64 // added to the maximum; may be 0
	// lowest and highest bound the rounded numbers. On a full grid a tie can exceed highest; all
	// other numbers are within the bounds anyway. The bounds are applied on every grid because the
	// CPU rounds faster with known bounds.
	lowest, highest float64
	centred         bool
	scale           microscaling.ScaleType // type that the step is rounded to
}

func newLevels(grid string, bits int, scale microscaling.ScaleType) (levels, error) {
	half := math.Ldexp(1, bits-1)
	if grid == gridCentred {
		return levels{half - 0.5, centredEps, 1 - half, half, true, scale}, nil
	}
	if bits < 2 {
		return levels{}, sdk.Refuse("bits = %d: the %s grid needs at least 2 bits; grid = %q has a "+
			"grid of 1 bit", bits, grid, gridCentred)
	}
	if grid == gridSymmetric {
		return levels{half - 1, 0, 1 - half, half - 1, false, scale}, nil
	}
	if grid == gridSigned {
		return levels{half, 0, -half, half - 1, false, scale}, nil
	}
	// For the maximum, x/s is half an odd integer, a tie: rounding to even yields ±2^(b−1), of
	// which only the negative one is a code.
	return levels{half - 0.5, 0, -half, half - 1, false, scale}, nil
}

func (l levels) codes(group int) sdk.Grid {
	if l.centred {
		return sdk.OddIntegers(int(2*l.highest-1), group)
	}
	return sdk.Integers(int(l.lowest), int(l.highest), group)
}

// quantize rounds x to the grid and returns value = scale·codes. amax holds the largest magnitude
// of each group, and finite is true for finite groups; all others become NaN.
func (l levels) quantize(x, amax, finite program.Value) (value, codes, scale program.Value) {
	b := x.Builder()
	// amax/top is rounded only once, to the same value as 2·amax/(2·top).
	step := amax
	if l.offset != 0 {
		step = step.Shift(l.offset)
	}
	step = finite.Select(l.scale.RoundStep(step.Div(b.Const(l.top)), l.centred), b.Const(math.NaN()))
	if l.centred {
		level := l.round(x.Div(step).Shift(0.5)).Shift(-0.5)
		return level.Mul(step), level.Scale(2), step.Scale(0.5)
	}
	zero := step.Lt(b.Const(smallest))
	step = zero.Select(b.Const(0), step)
	q := l.round(x.Div(zero.Select(b.Const(math.Inf(1)), step)))
	return q.Mul(step), q, step
}

// signed rounds x to the grid of that name. As in llama.cpp, codes are those of the scale before it
// is rounded to the type of scales, x/s is a product with 1/s, and ties go up.
func (l levels) signed(x, amax, finite program.Value) (value, codes, scale program.Value) {
	b := x.Builder()
	t := x.Type()
	t.DType = program.Int
	first := b.Iota(t, t.Rank()-1).Eq(x.Abs().ArgMaxRow())
	m := first.Select(x, b.Const(0)).SumRow() // one number and zeros
	step := m.Div(b.Const(-l.top))
	zero := amax.Div(b.Const(l.top)).Lt(b.Const(smallest))
	inverse := zero.Select(b.Const(0), b.Const(1).Div(step))
	// x/s + 2^(b−1) + ½ is positive, and llama.cpp truncates it.
	q := x.Mul(inverse).Shift(l.top+0.5).Floor().Shift(-l.top).Clip(l.lowest, l.highest)
	size := l.scale.RoundStep(amax.Div(b.Const(l.top)), false)
	scale = m.Lt(b.Const(0)).Select(size, size.Neg())
	scale = finite.Select(zero.Select(b.Const(0), scale), b.Const(math.NaN()))
	return q.Mul(scale), q, scale
}

// round returns the nearest integer within the bounds. For a group that is not finite the result is
// undefined, but the value is NaN because the step is.
func (l levels) round(v program.Value) program.Value { return v.Round().Clip(l.lowest, l.highest) }

func main() { sdk.ServeQuantizer(absmax{}) }
