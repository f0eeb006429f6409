package microscaling

import "github.com/cage-qat/cage/sdk/program"

// LargestE2M1 is the largest magnitude of E2M1, and LargestExponentE2M1 the
// exponent of its largest power of two.
const (
	LargestE2M1         = 6
	LargestExponentE2M1 = 2
)

// signE2M1 is the sign bit of a code.
const signE2M1 = 8

// exponentBits are the bits of the exponent in a binary32 number.
const exponentBits = 0x7f800000

// Ties says how a number that lies half way between two levels is rounded. The zero
// value is [TiesEven].
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
// specification 1.0, E2M1); magnitudes above 6, infinity included, become 6. The sign of
// a zero result is not defined. Nor is the result for NaN: the scale has to be NaN there.
//
// Between two powers of two the numbers of a format are equidistant. With one bit
// of mantissa their distance is half the lower power, which the exponent bits give;
// below 1 it stays ½. The bitcast rounds binary64 to binary32, which may turn a number
// just below a power of two into the power. That does no harm: it is rounded to the power
// with either distance.
func RoundE2M1(r program.Value, ties Ties) program.Value {
	r, distance := spacing(r)
	// The bounds change nothing, but the CPU rounds faster what it knows to be small.
	q := r.Div(distance).Clip(-4, 4)
	even := q.Round()
	if ties == TiesAway || ties == TiesDown { // which change it only for ties, where q ± ½ is exact
		step := map[Ties]float64{TiesAway: 0.5, TiesDown: -0.5}[ties]
		tie := q.Sub(even).Abs().Eq(q.Builder().Const(0.5))
		even = tie.Select(q.Add(q.Sign().Scale(step)), even)
	}
	return even.Mul(distance)
}

// spacing returns r within the bounds of E2M1, and the distance of the levels between which it
// lies.
func spacing(r program.Value) (bounded, distance program.Value) {
	bounded = r.Clip(-LargestE2M1, LargestE2M1)
	power := bounded.Bitcast(program.Uint).And(r.Builder().ConstUint(exponentBits)).Bitcast(program.Float)
	return bounded, power.Clip(1, 4).Scale(0.5)
}

// StochasticE2M1 rounds r to one of the two levels between which it lies, at random, so that the
// mean is r: to the upper one if u, uniform in [0, 1), is at least the distance to it in units of
// the distance of both levels. Levels stay as they are if u has at most 20 bits. Magnitudes above 6
// become 6, which has another mean. Signs of zeros and NaN are as in [RoundE2M1].
func StochasticE2M1(r, u program.Value) program.Value {
	r, distance := spacing(r)
	return r.Div(distance).Add(u).Floor().Clip(-4, 4).Mul(distance)
}

// EncodeE2M1 gives the codes 0…15 of numbers that [RoundE2M1] has returned. A code is the
// index of the magnitude in 0, ½, 1, 1½, 2, 3, 4, 6, plus 8 if x, which was rounded, has
// its sign bit set. The sign is kept where the result is zero: −0 has the code 8.
func EncodeE2M1(rounded, x program.Value) program.Value {
	b := x.Builder()
	m := rounded.Abs()
	index := m.Clip(0, 2).Scale(2).
		Add(m.Shift(-2).Clip(0, 2)).
		Add(m.Shift(-4).Clip(0, 2).Scale(0.5))
	sign := x.Bitcast(program.Uint).Shr(b.ConstUint(31)).Convert(program.Int)
	return index.Convert(program.Int).Add(sign.Mul(b.ConstInt(signE2M1)))
}

// DecodeE2M1 gives the numbers with the given codes, which are of type int or are
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
