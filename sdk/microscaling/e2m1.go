package microscaling

import "github.com/cage-qat/cage/sdk/program"

// LargestE2M1 is the largest number of E2M1, and LargestExponentE2M1 its largest exponent.
const (
	LargestE2M1         = 6
	LargestExponentE2M1 = 2
)

const signE2M1 = 8

// exponentBits is the mask of the exponent bits of a binary32 number.
const exponentBits = 0x7f800000

// Ties is the rounding of numbers halfway between two levels. The zero value is [TiesEven].
type Ties string

// The rules for ties.
const (
	TiesEven Ties = "even" // to the even code, as IEEE 754 and the OCP conversion do
	TiesAway Ties = "away" // to the larger magnitude
	TiesDown Ties = "down" // to the smaller magnitude
)

// TiesNames lists the rules as the choices of a parameter.
func TiesNames() []string {
	return []string{string(TiesEven), string(TiesAway), string(TiesDown)}
}

// RoundE2M1 rounds r to the nearest of ±{0, ½, 1, 1½, 2, 3, 4, 6} (OCP Microscaling
// specification 1.0, E2M1); magnitudes above 6, infinity included, saturate to 6. The sign
// of a zero result is not defined. Nor is the result for NaN: the scale has to be NaN there.
//
// Between two powers of two the levels are equidistant. With one bit of mantissa their distance is
// half the lower power, which is read from the exponent bits; below 1 it is ½. The bitcast rounds
// binary64 to binary32, perhaps up to a power of two, to which either distance rounds, too.
func RoundE2M1(r program.Value, ties Ties) program.Value {
	r, distance := spacing(r)
	// The clip changes nothing, but the CPU rounds faster where numbers are known to be small.
	q := r.Div(distance).Clip(-4, 4)
	even := q.Round()
	// The rules differ only at ties, where q ± ½ is exact.
	if step, ok := map[Ties]float64{TiesAway: 0.5, TiesDown: -0.5}[ties]; ok {
		tie := q.Sub(even).Abs().Eq(q.Builder().Const(0.5))
		even = tie.Select(q.Add(q.Sign().Scale(step)), even)
	}
	return even.Mul(distance)
}

// spacing returns r clipped to the range of E2M1, and the distance between the two levels around
// it.
func spacing(r program.Value) (bounded, distance program.Value) {
	bounded = r.Clip(-LargestE2M1, LargestE2M1)
	exponent := bounded.Bitcast(program.Uint).And(r.Builder().ConstUint(exponentBits))
	power := exponent.Bitcast(program.Float)
	return bounded, power.Clip(1, 4).Scale(0.5)
}

// StochasticE2M1 rounds r stochastically to one of the two adjacent levels, so that the mean is r:
// to the upper one if u, uniform in [0, 1), is at least the distance to it divided by the distance
// between the levels. Levels are unchanged if u has at most 20 bits. Magnitudes above 6 saturate to
// 6, so their mean is not r. Signs of zeros and NaN are as in [RoundE2M1].
func StochasticE2M1(r, u program.Value) program.Value {
	r, distance := spacing(r)
	return r.Div(distance).Add(u).Floor().Clip(-4, 4).Mul(distance)
}

// EncodeE2M1 returns the codes 0…15 of numbers that [RoundE2M1] has returned. A code is the
// index of the magnitude in 0, ½, 1, 1½, 2, 3, 4, 6, plus 8 if the sign bit of x, the
// number before rounding, is set. So the sign of zero is kept: −0 has the code 8.
func EncodeE2M1(rounded, x program.Value) program.Value {
	b := x.Builder()
	m := rounded.Abs()
	index := m.Clip(0, 2).Scale(2).
		Add(m.Shift(-2).Clip(0, 2)).
		Add(m.Shift(-4).Clip(0, 2).Scale(0.5))
	sign := x.Bitcast(program.Uint).Shr(b.ConstUint(31)).Convert(program.Int)
	return index.Convert(program.Int).Add(sign.Mul(b.ConstInt(signE2M1)))
}

// DecodeE2M1 returns the numbers of the given codes, which are of type int or are
// floats that hold integers.
func DecodeE2M1(codes program.Value) program.Value {
	b := codes.Builder()
	code := codes.Convert(program.Float)
	negative := code.Ge(b.Const(signE2M1))
	index := negative.Select(code.Shift(-signE2M1), code)
	m := index.Clip(0, 4).Scale(0.5).
		Add(index.Shift(-4).Clip(0, 2)).
		Add(index.Shift(-6).Clip(0, 1).Scale(2))
	return negative.Select(m.Neg(), m)
}
