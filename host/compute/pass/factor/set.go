package factor

import (
	"math"
	"slices"

	"github.com/cage-qat/cage/sdk/program"
)

// A set is what is known of the elements of a value in binary32, but for NaN and what is computed from NaN: a set of numbers that has all of them.
// They lie between lo and hi, and are multiples of step, a power of two, unless step is 0. (Rounding to binary32 leaves a multiple of
// a power of two one.)
type set struct {
	lo, hi, step float64
	// unit, if it is not 0, is a number from 1 to 2: each element is 0, ±∞, or ±unit times a power of two.
	unit float64
	// unsigned says that no element has the negative sign, zeros included.
	unsigned bool
	// listed are all numbers of the set, in order; nil if they are not known one by one.
	listed []float64
	// near bounds them by a quotient of other values.
	near quotientBound
}

// A quotientBound bounds the elements x of a value by those of two other values, in the same places: |x| ≤ |num/den| + more.
type quotientBound struct {
	known    bool
	num, den program.ID
	more     float64
	sums     int // how many terms were added to more, with a rounding each
}

// mostSums is the largest number of sums for whose roundings product allows.
const mostSums = 8

func (n quotientBound) plus(more float64) quotientBound {
	n.more += more
	n.sums++
	n.known = n.known && n.sums <= mostSums
	return n
}

var (
	anything = set{lo: math.Inf(-1), hi: math.Inf(1)}
	onlyNaN  = set{lo: math.Inf(1), hi: math.Inf(-1), step: coarsest, unit: 1, unsigned: true}
)

// The smallest and the largest step. That of a 0 is the largest.
const finest, coarsest = 1.0 / (1 << 20), 1 << 20

func (s set) isNaN() bool { return s.lo > s.hi }

// positive reports whether no element has the negative sign, zeros included.
func (s set) positive() bool { return s.unsigned || s.lo > 0 }

// inBinary32 is s with its bounds rounded to binary32. They still hold, because rounding is monotonic.
func (s set) inBinary32() set {
	s.lo, s.hi = float64(float32(s.lo)), float64(float32(s.hi))
	return s
}

// permuted is s for a value with the same elements in other places.
func (s set) permuted() set {
	s.near = quotientBound{}
	return s
}

// union is what is known of elements that are in s or in o.
func (s set) union(o set) set {
	for _, one := range [][2]set{{s, o}, {o, s}} {
		if one[0].isNaN() {
			return one[1].permuted()
		}
	}
	u := set{lo: min(s.lo, o.lo), hi: max(s.hi, o.hi), step: min(s.step, o.step), unsigned: s.positive() && o.positive()}
	if s.unit == o.unit {
		u.unit = s.unit
	}
	if a, ok := s.members(); ok {
		if b, ok := o.members(); ok {
			u.listed = sortedUnique(append(slices.Clone(a), b...))
		}
	}
	if s.near.known && o.near.known && s.near.num == o.near.num && s.near.den == o.near.den {
		u.near = s.near
		u.near.more, u.near.sums = max(s.near.more, o.near.more), max(s.near.sums, o.near.sums)
	}
	return u
}

// round is what is known of f(x), where f rounds to an integer that is at most more away from x.
func (s set) round(f func(float64) float64, more float64) set {
	return set{lo: f(s.lo), hi: f(s.hi), step: max(s.step, 1), near: s.near.plus(more)}
}

func (s set) neg() set {
	u := set{lo: -s.hi, hi: -s.lo, step: s.step, unit: s.unit, near: s.near}
	for _, x := range slices.Backward(s.listed) {
		u.listed = append(u.listed, -x)
	}
	return u
}

// clamp includes the limits themselves, because a clamp may turn NaN into one.
func (s set) clamp(lo, hi set) set {
	u := set{lo: min(max(s.lo, lo.lo), hi.lo), hi: min(max(s.hi, lo.hi), hi.hi), step: min(s.step, lo.step, hi.step), unit: s.unit}.union(lo).union(hi)
	u.listed, u.near, u.unsigned = nil, quotientBound{}, false // the sign of a zero is not defined
	if lo.hi <= 0 && hi.lo >= 0 {
		u.near = s.near // no magnitude grows
	}
	return u
}

func (s set) plus(o set) set {
	u := set{lo: s.lo + o.lo, hi: s.hi + o.hi, step: min(s.step, o.step)}
	switch {
	case s.near.known:
		u.near = s.near.plus(o.magnitude())
	case o.near.known:
		u.near = o.near.plus(s.magnitude())
	}
	return u
}

// magnitude is the largest one.
func (s set) magnitude() float64 { return max(-s.lo, s.hi) }

// productMembers lists the products of the numbers of a and those of b that lie within the bounds of u; nil if there are too many.
func productMembers(a, b, u set) []float64 {
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
	return sortedUnique(list)
}

// mostMembers is the largest number of members that are listed one by one.
const mostMembers = 64

// members lists all numbers of the set. ok is false if they are not known or too many.
func (s set) members() (list []float64, ok bool) {
	switch {
	case s.listed != nil:
		return s.listed, len(s.listed) <= mostMembers
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

// sortedUnique is the list in order, each number once; nil if there are too many.
func sortedUnique(list []float64) []float64 {
	slices.Sort(list)
	list = slices.Compact(list)
	if len(list) > mostMembers {
		return nil
	}
	return list
}

// ldexp is s times 2 to the power of exponents.
func (s set) ldexp(exponent set) set {
	u := anything
	u.unit = s.unit
	if s.lo < 0 {
		return u.checkUnit()
	}
	u.lo, u.hi = s.lo*math.Exp2(exponent.lo), s.hi*math.Exp2(exponent.hi)
	if math.IsNaN(u.lo) || math.IsNaN(u.hi) { // 0·∞
		u.lo, u.hi = 0, math.Inf(1)
	}
	return u.checkUnit()
}

// checkUnit drops the unit of s if numbers may be so small that binary32 rounds them to other than unit times a power
// of two. Powers of two stay powers of two, or become 0.
func (s set) checkUnit() set {
	if s.unit != 1 && !(s.inBinary32().lo >= s.unit*math.Exp2(-biasE8M0)) {
		s.unit = 0
	}
	return s
}
