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
	gridFit       = "fit"
	gridSign      = "sign"
	gridMinimum   = "minimum"
	gridMLX       = "mlx"
	gridAffine    = "affine"
	gridZero      = "asymmetric"
	gridZeroFit   = "asymmetric_fit"

	roundNearest = "nearest"
	roundLlama   = "llama.cpp"

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
			sdk.Int("bits", 4, 1, 8, "bits of a code; 1 bit needs the grid centred or sign"),
			sdk.Choice("grid", gridSymmetric,
				[]string{gridSymmetric, gridFull, gridCentred, gridGPTQ, gridSigned, gridFit, gridSign,
					gridMinimum, gridMLX, gridAffine, gridZero, gridZeroFit},
				"symmetric: integers with the maximum on the top code; full, gptq: all 2^b integers; "+
					"signed: all of them, and the number of largest magnitude has the code −2^(b−1), as in "+
					"llama.cpp's Q4_0 and Q5_0, so that the scale has the other sign; fit: all of them, "+
					"with the scale of symmetric or that which gives the least number the code −2^(b−1), "+
					"whichever has the smaller error, so that weights in compressed-tensors keep their "+
					"numbers; centred: half-integers, no zero; sign: −1 and 1 times the mean magnitude, as "+
					"in llama.cpp's Q1_0; minimum, mlx and affine: 0 to 2^b−1 and a minimum for each group, "+
					"as in llama.cpp's Q4_1 and Q5_1, by the rule of MLX's mx.quantize, and so that weights "+
					"of MLX keep their numbers; asymmetric: the same minus a zero point, as in "+
					"compressed-tensors; asymmetric_fit: the same, but numbers on such a grid stay"),
			sdk.Choice("rounding", roundNearest, []string{roundNearest, roundLlama},
				"nearest: codes are x/s, for the scale s in its type, ties to even; llama.cpp: x times the "+
					"reciprocal of the scale before it is rounded to its type, ties away from zero, as in "+
					"llama.cpp's Q8_0, Q2_0 and TQ types"),
			sdk.Choice("granularity", perRow, []string{perTensor, perRow, perGroup}, "what shares a scale"),
			sdk.Int("group", 128, 1, 1<<20, "granularity group: consecutive entries of a row that share a "+
				"scale; the last group of a row may be shorter, except on the grids sign, minimum, mlx and "+
				"affine"),
			microscaling.ScaleParameter(),
		},
		Claims: claims(),
	}
}

func claims() (list []sdk.Claim) {
	// Maxima and minima are on the outermost codes, so a second quantization has the same scale.
	for _, grid := range []string{gridSymmetric, gridSigned, gridFit, gridSign, gridMinimum,
		gridAffine, gridZeroFit} {
		list = append(list,
			sdk.Claim{Name: sdk.ClaimIdempotent, When: map[string]any{"grid": grid}})
	}
	for _, grid := range []string{gridFull, gridGPTQ} { // x = −amax is a tie between two codes
		list = append(list, sdk.Claim{Name: sdk.ClaimTies, When: map[string]any{"grid": grid}})
	}
	for _, scale := range []microscaling.ScaleType{microscaling.ScaleBF16, microscaling.ScaleF16} {
		short := func(parameter, value string) { // codes are the nearest before the scale is rounded
			list = append(list, sdk.Claim{Name: sdk.ClaimAnyRounding,
				When: map[string]any{parameter: value, "scale_dtype": string(scale)}})
		}
		for _, grid := range []string{gridSigned, gridMinimum, gridMLX, gridAffine, gridZero,
			gridZeroFit} {
			short("grid", grid)
		}
		short("rounding", roundLlama)
	}
	return list
}

// Quantize writes the program for one site.
func (absmax) Quantize(b *program.Builder, x program.Value, site sdk.Site) (sdk.Quantized, error) {
	grid, granularity := site.Text("grid"), site.Text("granularity")
	levels, err := newLevels(grid, site.Int("bits"), microscaling.ScaleTypeOf(site))
	if err != nil {
		return sdk.Quantized{}, err
	}
	asymmetric := grid == gridZero || grid == gridZeroFit
	ofRows := grid == gridSigned || grid == gridSign || isAffine(grid) || asymmetric
	levels.reciprocal = site.Text("rounding") == roundLlama
	if levels.reciprocal && (ofRows || levels.centred) {
		return sdk.Quantized{}, sdk.Refuse("grid = %q has its own rounding: leave rounding = %q",
			grid, roundNearest)
	}
	levels.reciprocal = levels.reciprocal || ofRows
	split := newGroups(site)
	grouped := split.apply(x)
	largest := program.Value.MaxRow // one per group, or a scalar
	if granularity == perTensor {
		largest = program.Value.MaxAll
		if ofRows {
			return sdk.Quantized{}, sdk.Refuse(
				"grid = %q has a scale for each row or group, not for a tensor", grid)
		}
	}
	if (grid == gridSign || isAffine(grid)) && split.split && site.RowLen()%split.declared != 0 {
		return sdk.Quantized{}, sdk.Refuse("grid = %q needs a group that divides a row of %d numbers",
			grid, site.RowLen()) // the zeros that pad the last one would change its mean or range
	}
	amax := largest(grouped.Abs())
	finite := amax.IsFinite()
	var value, codes, scale program.Value
	switch {
	case isAffine(grid):
		value, codes, scale = levels.affine(grouped, finite)
	case asymmetric:
		value, codes, scale = levels.asymmetric(grouped, finite)
	default:
		value, codes, scale = levels.quantize(grouped, levels.step(grouped, amax), finite)
	}
	if grid == gridFit {
		other := largest(grouped.Neg()).Max(b.Const(0)).Div(b.Const(-levels.lowest))
		otherValue, otherCodes, otherScale := levels.quantize(grouped, other, finite)
		sum := program.Value.SumRow
		if granularity == perTensor {
			sum = program.Value.SumAll
		}
		better := nearer(grouped, otherValue, value, sum)
		value, codes = better.Select(otherValue, value), better.Select(otherCodes, codes)
		scale = better.Select(otherScale, scale)
	}
	mask := finite.Broadcast(grouped.Shape(), nil)
	return sdk.Quantized{
		Value:     split.undo(value),
		Surrogate: split.undo(finite.Select(grouped, b.Const(0))),
		Codes:     split.undo(finite.Select(codes, b.Const(0)).Convert(program.Int)),
		Scale:     scale,
		Grid:      levels.codes(split.declared),
		Mask:      split.undo(mask),
		Homogeneous: levels.offset == 0 && levels.scale.ScaleType == microscaling.ScaleF32 &&
			grid != gridMLX && grid != gridAffine,
	}, nil
}

// Unpack writes scale·codes, plus the minimum if there is one, group by group. On the centred grid
// codes are doubled levels and the scale is half a step; both conversions are exact.
func (absmax) Unpack(_ *program.Builder, codes, scale program.Value,
	site sdk.Site) (program.Value, error) {
	split := newGroups(site)
	codes = split.apply(codes.Convert(program.Float))
	if isAffine(site.Text("grid")) {
		last := scale.Type().Rank() - 1
		return split.undo(codes.Mul(scale.At(last, 0, 1)).Add(scale.At(last, 1, 2))), nil
	}
	return split.undo(codes.Mul(scale)), nil
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
//	fit         s = amax/(2^(b−1)−1) or −min/2^(b−1), q as above
//	centred     s = (amax+1e-8)/(2^b−1)·2 q = round(x/s + ½) − ½
//	signed      s = −m/2^(b−1)            q = ⌊x/s + ½⌋ in −2^(b−1) … 2^(b−1)−1
//	sign        s = mean|x|               q = 1, or −1 for x < 0
//
// m is the first number with the largest magnitude in its group.
type levels struct {
	grid   string
	top    float64 // ratio of the maximum to the step
	offset float64 // added to the maximum; may be 0
	// lowest and highest bound the rounded numbers. On a full grid a tie can exceed highest; all
	// other numbers are within the bounds anyway. The bounds are applied on every grid because the
	// CPU rounds faster with known bounds.
	lowest, highest float64
	centred         bool
	scale           scaleType // type that the step is rounded to
	reciprocal      bool      // codes are those of the step before it is rounded
}

func newLevels(grid string, bits int, scale microscaling.ScaleType) (levels, error) {
	half := math.Ldexp(1, bits-1)
	l := levels{grid: grid, scale: scaleType{scale}, top: half - 0.5, lowest: -half, highest: half - 1}
	switch {
	case grid == gridCentred:
		l.offset, l.lowest, l.highest, l.centred = centredEps, 1-half, half, true
	case grid == gridSign && bits > 1:
		return l, sdk.Refuse("bits = %d: grid = %q has 1 bit", bits, grid)
	case grid == gridSign:
		l.lowest, l.highest = -1, 1
	case bits < 2:
		return l, sdk.Refuse("bits = %d: the %s grid needs at least 2 bits; grid = %q and %q have "+
			"1 bit", bits, grid, gridCentred, gridSign)
	case grid == gridSymmetric:
		l.top, l.lowest = half-1, 1-half
	case grid == gridFit:
		l.top = half - 1
	case grid == gridSigned:
		l.top = half
	case isAffine(grid):
		l.lowest, l.highest = 0, 2*half-1
	} // On a full grid, amax/s is half an odd integer, a tie: rounding to even yields ±2^(b−1), of
	// which only the negative one is a code.
	return l, nil
}

func (l levels) codes(group int) sdk.Grid {
	switch {
	case l.centred:
		return sdk.OddIntegers(int(2*l.highest-1), group)
	case l.grid == gridSign:
		return sdk.OddIntegers(1, group)
	case l.lowest == 0:
		return sdk.Affine(int(l.highest), group)
	case l.grid == gridZero || l.grid == gridZeroFit:
		return sdk.ZeroPoints(int(l.highest-l.lowest), group)
	}
	return sdk.Integers(int(l.lowest), int(l.highest), group)
}

// step returns the step of each group before it is rounded to the type of scales.
func (l levels) step(x, amax program.Value) program.Value {
	b := x.Builder()
	switch l.grid {
	case gridSign:
		return x.Abs().MeanRow()
	case gridSigned:
		// The first element of largest magnitude decides: early is larger for earlier elements.
		t := x.Type()
		t.DType = program.Int
		early := b.Iota(t, t.Rank()-1).Neg().Convert(program.Float).Shift(float64(t.Shape[t.Rank()-1]))
		first := func(value program.Value) program.Value {
			return x.Eq(value).Select(early, b.Const(0)).MaxRow()
		}
		negative := first(amax).Lt(first(amax.Neg()))
		return negative.Select(amax.Neg(), amax).Div(b.Const(-l.top))
	}
	if l.offset != 0 {
		amax = amax.Shift(l.offset)
	}
	return amax.Div(b.Const(l.top)) // rounded only once, to the same value as 2·amax/(2·top)
}

// quantize rounds x to the grid and returns value = scale·codes. finite is true for finite groups;
// all others become NaN.
func (l levels) quantize(x, step, finite program.Value) (value, codes, scale program.Value) {
	if l.reciprocal {
		return l.llama(x, step, finite)
	}
	b := x.Builder()
	step = finite.Select(l.scale.RoundStep(step, l.centred), b.Const(math.NaN()))
	if l.centred {
		level := l.round(x.Div(step).Shift(0.5)).Shift(-0.5)
		return level.Mul(step), level.Scale(2), step.Scale(0.5)
	}
	zero := step.Lt(b.Const(smallest))
	step = zero.Select(b.Const(0), step)
	q := l.round(x.Div(zero.Select(b.Const(math.Inf(1)), step)))
	return q.Mul(step), q, step
}

// llama rounds as llama.cpp does: codes are those of the step before it is rounded to the type of
// scales, x/s is a product with 1/s, and a step that is rounded to zero gives zeros.
func (l levels) llama(x, step, finite program.Value) (value, codes, scale program.Value) {
	b := x.Builder()
	zero := l.scale.zero(step)
	v := x.Mul(zero.Select(b.Const(0), b.Const(1).Div(step)))
	switch l.grid {
	case gridSign:
		codes = v.Lt(b.Const(0)).Select(b.Const(-1), zero.Select(b.Const(0), b.Const(1)))
	case gridSigned: // ties up: x/s + 2^(b−1) + ½ is positive, and llama.cpp truncates it
		codes = v.Shift(l.top + 0.5).Floor().Shift(-l.top)
	default: // ties away from zero
		whole := v.Abs().Floor()
		whole = whole.Add(v.Abs().Sub(whole).Scale(2).Floor())
		codes = v.Lt(b.Const(0)).Select(whole.Neg(), whole)
	}
	codes = codes.Clip(l.lowest, l.highest)
	scale = finite.Select(l.scale.signed(step), b.Const(math.NaN()))
	return codes.Mul(scale), codes, scale
}

// round returns the nearest integer within the bounds. For a group that is not finite the result is
// undefined, but the value is NaN because the step is.
func (l levels) round(v program.Value) program.Value { return v.Round().Clip(l.lowest, l.highest) }

func main() { sdk.ServeQuantizer(absmax{}) }
