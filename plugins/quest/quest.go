// Command quest implements the QuEST quantizer as a plugin (Panferov et al., "QuEST: Stable
// Training of LLMs with 1-Bit Weights and Activations", 2025), also in the integer form that later
// work on 4-bit training uses.
//
// A row x is rotated by a Hadamard matrix, z = Hx, so that its entries are approximately Gaussian;
// the scale is computed from its root mean square σ and a factor k that minimises the squared error
// on a Gaussian; z is rounded to the grid, ẑ, and rotated back, x̂ = Hᵀẑ. In the backward pass,
// only entries with a small enough (trusted) rounding error pass gradients:
//
//	dx = Hᵀ(M ⊙ H·dx̂)
//
// Rows of zeros and rows that are not finite are handled by one number per row, without a pass over
// the matrix. The grids are in paper.go (integers) and official.go (half-integers).
package main

import (
	"log/slog"
	"math"
	"math/bits"
	"slices"

	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/microscaling"
	"github.com/cage-qat/cage/sdk/program"
)

type quest struct{}

var (
	_ sdk.Quantizer = quest{}
	_ sdk.Packer    = quest{}
)

// Values of the form and mask parameters.
const (
	formPaper    = "paper"
	formOfficial = "official"
	formTernary  = "ternary"

	maskTrust = "trust"
	maskClip  = "clip"
	maskNone  = "none"
)

// Describe declares the parameters.
func (quest) Describe() sdk.Description {
	return sdk.Description{
		Name:    "quest",
		Version: "1.2.0",
		Doc: "QuEST (Panferov et al. 2025): Hadamard rotation, one RMS scale for each row, clipped to " +
			"minimize the error on a Gaussian, rounding to nearest, trust-masked gradient.",
		Parameters: []sdk.Parameter{
			sdk.Int("bits", 4, 1, 8, "bits of a code; 1 bit needs the official form; "+
				"the ternary form has three codes and ignores it"),
			sdk.Choice("form", formPaper, []string{formPaper, formOfficial, formTernary},
				"integer grid with a zero, half-integer grid of the published code, or -1, 0, 1"),
			sdk.String("rotation", rotateAuto, "block of the Hadamard rotation: auto (the largest power "+
				"of two that divides the row), full (the whole row), none, or a power of two such as 128"),
			sdk.Choice("mask", maskTrust, []string{maskTrust, maskClip, maskNone}, "entries that pass "+
				"gradients: rounding error within half a step, value inside the grid's range, or all"),
			sdk.Float("trust", 1, 0, math.Inf(1), "multiplies the threshold of the trust or clip mask"),
			microscaling.ScaleParameter(),
		},
	}
}

// grid is the result of rounding in the rotated domain, with ẑ = scale·codes.
type grid struct {
	zhat   program.Value // on the grid, in the shape of z; NaN in rows that are not finite
	codes  program.Value // float-valued integers in the shape of z
	scale  program.Value // one per row: float[…,1]
	mask   program.Value // bool in the shape of z, or one per row
	finite program.Value // bool[…,1]: false for rows with NaN or ±Inf
	all    sdk.Grid      // all codes of the grid
}

// Quantize writes the program for one site.
func (quest) Quantize(b *program.Builder, x program.Value, site sdk.Site) (sdk.Quantized, error) {
	rotation, err := newRotation(site.Text("rotation"), site.RowLen())
	if err != nil {
		return sdk.Quantized{}, err
	}
	unrotated := rotation == 1 && site.RowLen() > 1 && site.Text("rotation") == rotateAuto
	if unrotated && site.Training { // once per site: evaluation has a second program
		slog.Warn("rows of odd length are not rotated", "site", site.Name, "length", site.RowLen())
	}
	z := rotation.Apply(x)
	var g grid
	official := site.Text("form") == formOfficial
	if official {
		g = quantizeOfficial(z, site)
	} else {
		l, err := newLevels(site)
		if err != nil {
			return sdk.Quantized{}, err
		}
		g = l.quantize(z, site)
	}
	value, mask, zero := rotation.Apply(g.zhat), g.mask, b.Const(0)
	// The reverse pass of the surrogate is dx = Hᵀ(M ⊙ H·dx̂); its value is never used. Without a
	// mask, M is constant along each row, and the two rotations cancel.
	passes := z
	if site.Text("mask") == maskNone {
		passes, rotation = x, 1
	}
	surrogate := rotation.Apply(mask.Select(passes, zero))
	codes := g.finite.Select(g.codes, zero).Convert(program.Int)
	if !slices.Equal(mask.Shape(), site.Shape) { // one element for each row
		mask = mask.Broadcast(site.Shape, nil)
	}
	return sdk.Quantized{
		Value:       value,
		Surrogate:   surrogate,
		Codes:       codes,
		Scale:       g.scale,
		Grid:        g.all,
		Mask:        mask,
		Homogeneous: !official && microscaling.ScaleTypeOf(site) == microscaling.ScaleF32,
	}, nil
}

// Unpack writes Hᵀ(scale·codes). In the official form codes are doubled levels and the
// scale is half a step; both conversions are exact.
func (quest) Unpack(_ *program.Builder, codes, scale program.Value,
	site sdk.Site) (program.Value, error) {
	rotation, err := newRotation(site.Text("rotation"), site.RowLen())
	if err != nil {
		return program.Value{}, err
	}
	return rotation.Apply(codes.Convert(program.Float).Mul(scale)), nil
}

// rms returns the root mean square of each row, and whether it, and thus the row, is finite. In
// binary32 it is also infinite if elements exceed about 1e19, but then training has failed anyway.
func rms(z program.Value) (sigma, finite program.Value) {
	sigma = z.Square().MeanRow().Sqrt()
	return sigma, sigma.IsFinite()
}

// whereFinite returns v in finite rows and NaN elsewhere, so that products with it are NaN there.
func whereFinite(v, finite program.Value) program.Value {
	return finite.Select(v, v.Builder().Const(math.NaN()))
}

// Values of the rotation parameter, in addition to numbers and [microscaling.NoRotation].
const (
	rotateAuto = "auto"
	rotateFull = "full"
)

// newRotation parses the setting for rows of length d. The paper rotates by a matrix of the size of
// the row. In natural order such a matrix exists only for powers of two, so auto uses the largest
// power of two that divides d.
func newRotation(setting string, d int) (microscaling.Rotation, error) {
	largest := 1 << bits.TrailingZeros(uint(d))
	switch {
	case setting == rotateFull && largest != d:
		return 0, sdk.Refuse("rotation = %q: the row length %d is not a power of two; %q rotates "+
			"blocks of %d", setting, d, rotateAuto, largest)
	case setting == rotateAuto || setting == rotateFull:
		return microscaling.Rotation(largest), nil
	}
	return microscaling.NewRotation(setting, d, rotateAuto, rotateFull)
}

// matchedK holds, indexed by the number of bits b, the factor k_b that minimises E[(z − Q(z))²] for
// z ~ N(0,1) on the paper's grid s·{−2^(b−1), …, 2^(b−1)−1} with s = k/(2^(b−1)−1). The paper uses
// such factors without printing them; these are the roots of the derivative in closed form (normal
// density and distribution at the midpoints between levels), found by bisection in binary64.
var matchedK = [9]float64{
	2: 1.0483852624850138,
	3: 1.805472680055906,
	4: 2.370255550006294,
	5: 2.831883343531198,
	6: 3.229562857431739,
	7: 3.583902708125806,
	8: 3.907228474931234,
}

// ternaryK is the factor for the grid {−1, 0, 1}, computed like matchedK. The published code has
// 1.2240089519030855, without a formula.
const ternaryK = 1.2240063619249617

func main() { sdk.ServeQuantizer(quest{}) }
