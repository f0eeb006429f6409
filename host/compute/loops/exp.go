package loops

import "math"

// The exponential is 2ⁿ·exp(r), where r = x − n·log 2 is within ±log(2)/2. The hyperbolic tangent
// is a polynomial near 0 and 1 − 2/(exp(2|x|) + 1) elsewhere. The polynomials are from Cephes' expf
// and tanhf (Moshier, 1989). Nothing is fused, so that all processors give the same bits. TestExp
// measures the errors.
const (
	log2e     = 1.44269504088896341
	log2Upper = 0.693359375 // few significant bits: its product with n is exact
	log2Lower = -2.12194440e-4
	expP0     = 1.9875691500e-4
	expP1     = 1.3981999507e-3
	expP2     = 8.3334519073e-3
	expP3     = 4.1665795894e-2
	expP4     = 1.6666665459e-1
	expP5     = 5.0000001201e-1
	expLeast  = -104 // here the exponential is 0, and at expMost +Inf
	expMost   = 89

	tanhP0   = -5.70498872745e-3
	tanhP1   = 2.06390887954e-2
	tanhP2   = -5.37397155531e-2
	tanhP3   = 1.33314422036e-1
	tanhP4   = -3.33332819422e-1
	tanhNear = 0.625 // the polynomial is used for smaller magnitudes

	// Floats near shifter are integers, so adding shifter rounds to an integer, which is then in
	// the lowest bits of the sum.
	shifter     = 3 << 22
	shifterBits = 0x4b400000
)

func exp(x float32) float32 {
	if x != x {
		return x
	}
	x = Clamp1(x, expLeast, expMost)
	shifted := float32(x*log2e) + shifter
	n := shifted - shifter
	r := x - float32(n*log2Upper)
	r -= float32(n * log2Lower)
	p := float32(expP0*r) + expP1
	p = float32(p*r) + expP2
	p = float32(p*r) + expP3
	p = float32(p*r) + expP4
	p = float32(p*r) + expP5
	y := float32(p*float32(r*r)) + r + 1
	// The factor 2ⁿ is applied in two steps: the first product is exact, and the second rounds if
	// the result is subnormal.
	k := int32(math.Float32bits(shifted)) - shifterBits
	return float32(y*power2(k>>1)) * power2(k-k>>1)
}

// power2 returns 2ⁿ for an exponent n of normal numbers.
func power2(n int32) float32 { return math.Float32frombits(uint32(n+127) << 23) }

func tanh(x float32) float32 {
	m := math.Float32frombits(math.Float32bits(x) &^ (1 << 31))
	if !(m >= tanhNear) {
		z := float32(x * x)
		p := float32(tanhP0*z) + tanhP1
		p = float32(p*z) + tanhP2
		p = float32(p*z) + tanhP3
		p = float32(p*z) + tanhP4
		return float32(float32(p*z)*x) + x
	}
	y := 1 - 2/(exp(m+m)+1)
	if x < 0 {
		return -y
	}
	return y
}
