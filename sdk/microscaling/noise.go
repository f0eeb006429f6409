package microscaling

import (
	"slices"

	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program"
)

// Values of a quantizer's "rounding" and "signs" parameters.
const (
	RoundNearest    = "nearest"
	RoundStochastic = "stochastic"

	SignsFixed  = "fixed"
	SignsRandom = "random"
)

const noiseBits = 16

// RoundAt rounds ratios to E2M1 as a site's settings "rounding" and "ties" require: to nearest or,
// in training, stochastically with the noise of the site.
func RoundAt(ratio program.Value, site sdk.Site) program.Value {
	if site.Text("rounding") == RoundNearest || !site.Training {
		return RoundE2M1(ratio, Ties(site.Text("ties")))
	}
	return StochasticE2M1(ratio, Uniform(ratio.Builder(), site, ratio.Shape()...))
}

// Uniform returns uniform random numbers in (0, 1) for stochastic rounding in training, generated
// from a site's noise.
func Uniform(b *program.Builder, site sdk.Site, shape ...int) program.Value {
	bits := b.RandomBits(site.Noise, shape...).Shr(b.ConstUint(32 - noiseBits))
	return bits.Convert(program.Float).Shift(0.5).Scale(1.0 / (1 << noiseBits))
}

// Signs holds the signs by which the entries of a row are multiplied before a rotation, and after
// the inverse rotation. The zero value changes nothing.
type Signs struct {
	of     program.Value // float[1,…,row], or float[1,…,1,period] where they are periodic
	blocks *Blocks       // divides a row into periods; nil if the signs are not periodic
}

// RandomSigns returns signs that are new in each step, and the same for both operands of a product.
func RandomSigns(b *program.Builder, site sdk.Site) Signs {
	shape := slices.Repeat([]int{1}, len(site.Shape))
	shape[len(shape)-1] = site.RowLen()
	bits := b.RandomBits(site.SharedNoise, shape...).Shr(b.ConstUint(31))
	return Signs{of: bits.Convert(program.Float).Scale(2).Shift(-1)}
}

// PeriodicSigns repeats signs, each 1 or −1, along the rows; their number divides the row length.
func PeriodicSigns(b *program.Builder, site sdk.Site, signs []float64) Signs {
	shape := slices.Repeat([]int{1}, len(site.Shape)+1)
	shape[len(shape)-1] = len(signs)
	blocks := NewBlocks(site.Shape, len(signs))
	return Signs{b.Table(signs, shape...), &blocks}
}

// Apply multiplies x, in the shape of the site, by the signs.
func (s Signs) Apply(x program.Value) program.Value {
	switch {
	case !s.of.Valid():
		return x
	case s.blocks != nil:
		return s.blocks.Join(s.blocks.Split(x).Mul(s.of))
	}
	return x.Mul(s.of)
}

// PositiveZeros turns −0 into 0 in rotated entries, so that zeros have the code 0 for any signs.
func (s Signs) PositiveZeros(v program.Value) program.Value {
	if !s.of.Valid() {
		return v
	}
	return v.Add(v.Builder().Const(0)) // −0 + 0 is 0
}
