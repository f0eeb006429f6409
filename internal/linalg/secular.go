package linalg

import "math"

const epsilon = 0x1p-53 // half the distance from 1 to the next number

// secularRoot finds the root j of 1 + ρ·Σ z²/(d−λ), with ρ > 0 and ascending poles d.
// It lies above d[j] and below d[j+1], or d[j] + ρ·Σz² for the last one. λ is
// d[origin] + μ: μ is accurate also where λ and the pole, the closer one, have most
// digits in common. The iteration replaces the sums over the poles to the left and to
// the right by one pole each (the "middle way" of Li, "Solving secular equations
// stably and efficiently", 1993), and halves the interval where this leads out of it.
func secularRoot(j int, d, z []float64, rho, square float64) (origin int, mu float64) {
	last := j == len(d)-1
	right := rho * square // the end of the interval, from d[j]
	if !last {
		right = d[j+1] - d[j]
	}
	origin = j
	lo, hi := 0.0, right
	mu = right / 2
	if !last {
		if sum, _ := active.secular(d, z, d[j], mu); 1+rho*sum < 0 {
			origin, lo, hi, mu = j+1, -right/2, 0, -right/2
		} else {
			hi = mu
		}
	}
	for range 100 {
		left, leftSlope := active.secular(d[:j+1], z, d[origin], mu)
		rest, restSlope := active.secular(d[j+1:], z[j+1:], d[origin], mu)
		left, rest = rho*left, rho*rest
		f := 1 + left + rest
		if f < 0 {
			lo = mu
		} else {
			hi = mu
		}
		if math.Abs(f) <= 4*epsilon*(1+rest-left) || hi-lo <= epsilon*min(math.Abs(lo), math.Abs(hi)) {
			break
		}
		next := mu + middleWay(j, d, d[origin], mu, f, rho*leftSlope, rho*restSlope)
		if !(next > lo && next < hi) {
			next = between(lo, hi)
		}
		if next == mu {
			break
		}
		mu = next
	}
	return origin, mu
}

// middleWay is the step from λ, the origin plus mu, to the root of the interpolation
// with a pole at d[j] and one at d[j+1]; for the last root there is only the first.
func middleWay(j int, d []float64, origin, mu, f, leftSlope, rightSlope float64) float64 {
	p := d[j] - origin - mu
	if j == len(d)-1 {
		return p + leftSlope*p*p/(f-p*leftSlope)
	}
	q := d[j+1] - origin - mu
	c := f - p*leftSlope - q*rightSlope
	a := (p+q)*f - p*q*(leftSlope+rightSlope)
	b := p * q * f
	root := math.Sqrt(max(a*a-4*b*c, 0))
	if a <= 0 {
		return (a - root) / (2 * c)
	}
	return 2 * b / (a + root)
}

// between halves an interval, on a logarithmic scale where it spans many magnitudes.
func between(lo, hi float64) float64 {
	small, large := math.Abs(lo), math.Abs(hi)
	if small > large {
		small, large = large, small
	}
	if lo*hi < 0 || large < 4*small {
		return lo + (hi-lo)/2
	}
	mid := large / 1024
	if small > 0 {
		mid = math.Sqrt(small) * math.Sqrt(large)
	}
	if hi <= 0 {
		return -mid
	}
	return mid
}
