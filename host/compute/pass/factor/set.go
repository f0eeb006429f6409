package factor

import (
	"math"
	"slices"

	"github.com/cage-qat/cage/sdk/program"
)

// A set is what is known, in binary32, of all elements of a value that no NaN takes part in: they lie between lo and hi, and
// are multiples of step, a power of two; where that is 0 they may be any. A float32 that is rounded from a multiple of a
// power of two is one, too.
type set struct {
	lo, hi, step float64
	// unit tells, where it is not 0, that each is 0, ±∞, or ±unit times a power of two; it is from 1 to 2.
	unit float64
	// unsigned tells that none has a sign, no zero either.
	unsigned bool
	// few has all numbers that they may be, in order; nil where these are not known.
	few []float64
	// near says how large they are beside a quotient.
	near near
}

// near is a bound by a quotient of two other values: |x| ≤ |num/den| + more.
type near struct {
	known    bool
	num, den program.ID
	more     float64
	sums     int // that more has come by, each of them rounded
}

// mostSums bounds the sums: product allows for their rounding.
const mostSums = 8

func (n near) plus(more float64) near {
	n.more += more
	n.sums++
	n.known = n.known && n.sums <= mostSums
	return n
}

var (
	anything = set{lo: math.Inf(-1), hi: math.Inf(1)}
	onlyNaN  = set{lo: math.Inf(1), hi: math.Inf(-1), step: coarsest, unit: 1, unsigned: true}
)

// Steps that are told apart: 0 is a multiple of the coarsest.
const finest, coarsest = 1.0 / (1 << 20), 1 << 20

func (s set) isNaN() bool { return s.lo > s.hi }

// positive tells that none is negative, nor a zero with a sign.
func (s set) positive() bool { return s.unsigned || s.lo > 0 }

// single is s with bounds as binary32 rounds them: what is computed in it from numbers between others is between theirs.
func (s set) single() set {
	s.lo, s.hi = float64(float32(s.lo)), float64(float32(s.hi))
	return s
}

// elsewhere is s for elements in other places.
func (s set) elsewhere() set {
	s.near = near{}
	return s
}

// or has the elements of both.
func (s set) or(o set) set {
	for _, one := range [][2]set{{s, o}, {o, s}} {
		if one[0].isNaN() {
			return one[1].elsewhere()
		}
	}
	u := set{lo: min(s.lo, o.lo), hi: max(s.hi, o.hi), step: min(s.step, o.step), unsigned: s.positive() && o.positive()}
	if s.unit == o.unit {
		u.unit = s.unit
	}
	if a, ok := s.members(); ok {
		if b, ok := o.members(); ok {
			u.few = sorted(append(slices.Clone(a), b...))
		}
	}
	if s.near.known && o.near.known && s.near.num == o.near.num && s.near.den == o.near.den {
		u.near = s.near
		u.near.more, u.near.sums = max(s.near.more, o.near.more), max(s.near.sums, o.near.sums)
	}
	return u
}

// whole is s after a function that makes whole numbers of others, at most more away.
func (s set) whole(f func(float64) float64, more float64) set {
	return set{lo: f(s.lo), hi: f(s.hi), step: max(s.step, 1), near: s.near.plus(more)}
}

func (s set) neg() set {
	u := set{lo: -s.hi, hi: -s.lo, step: s.step, unit: s.unit, near: s.near}
	for _, x := range slices.Backward(s.few) {
		u.few = append(u.few, -x)
	}
	return u
}

// clamp has the limits among its numbers: NaN may become one.
func (s set) clamp(lo, hi set) set {
	u := set{lo: min(max(s.lo, lo.lo), hi.lo), hi: min(max(s.hi, lo.hi), hi.hi), step: min(s.step, lo.step, hi.step), unit: s.unit}.or(lo).or(hi)
	u.few, u.near, u.unsigned = nil, near{}, false // the sign of a zero is not defined
	if lo.hi <= 0 && hi.lo >= 0 {
		u.near = s.near // no number gets larger
	}
	return u
}

func (s set) plus(o set) set {
	u := set{lo: s.lo + o.lo, hi: s.hi + o.hi, step: min(s.step, o.step)}
	switch {
	case s.near.known:
		u.near = s.near.plus(o.size())
	case o.near.known:
		u.near = o.near.plus(s.size())
	}
	return u
}

// size is the largest magnitude.
func (s set) size() float64 { return max(-s.lo, s.hi) }

// products are the numbers of a times those of b that are within the bounds of u; nil where they are too many.
func products(a, b, u set) []float64 {
	x, ok := a.members()
	y, both := b.members()
	if !ok || !both {
		return nil
	}
	var list []float64
	for _, x := range x {
		for _, y := range y {
			if p := float64(float32(x * y)); p >= u.lo && p <= u.hi {
				list = append(list, p)
			}
		}
	}
	return sorted(list)
}

// mostMembers bounds the numbers that are listed one by one.
const mostMembers = 64

// members are all numbers that the elements may be, where these are few.
func (s set) members() (list []float64, ok bool) {
	switch {
	case s.few != nil:
		return s.few, len(s.few) <= mostMembers
	case math.IsInf(s.lo, 0) || math.IsInf(s.hi, 0):
		return nil, false
	case s.unit > 0 && s.lo > 0:
		for x := s.unit * math.Exp2(math.Ceil(math.Log2(s.lo/s.unit))); x <= s.hi && len(list) <= mostMembers; x *= 2 {
			list = append(list, x)
		}
	case s.step > 0 && (s.hi-s.lo)/s.step < mostMembers:
		for x := math.Ceil(s.lo/s.step) * s.step; x <= s.hi; x += s.step {
			list = append(list, x)
		}
	}
	return list, len(list) > 0 && len(list) <= mostMembers
}

// sorted puts a list in order, each number once; nil where they are too many.
func sorted(list []float64) []float64 {
	slices.Sort(list)
	list = slices.Compact(list)
	if len(list) > mostMembers {
		return nil
	}
	return list
}

// ldexp is s times powers of two.
func (s set) ldexp(exponent set) set {
	u := anything
	u.unit = s.unit
	if s.lo < 0 {
		return u.exact()
	}
	u.lo, u.hi = s.lo*math.Exp2(exponent.lo), s.hi*math.Exp2(exponent.hi)
	if math.IsNaN(u.lo) || math.IsNaN(u.hi) { // 0·∞
		u.lo, u.hi = 0, math.Inf(1)
	}
	return u.exact()
}

// exact is s without its unit where some numbers may be so small that binary32 rounds them to what is no unit times a power
// of two. Powers of two stay such, or become 0.
func (s set) exact() set {
	if s.unit != 1 && !(s.single().lo >= s.unit*math.Exp2(-biasE8M0)) {
		s.unit = 0
	}
	return s
}
