package cage

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
)

// Levels are the numbers that codes stand for, in units of the scale, in ascending order.
type Levels struct {
	Numbers []float64
	Codes   []int32 // the code of each number
}

// NewLevels sorts the numbers of codes. If several codes stand for one number, as for 0 and −0, it
// keeps the smallest code.
func NewLevels(numbers map[int32]float32) Levels {
	type level struct {
		number float64
		code   int32
	}
	var list []level
	for code, number := range numbers {
		list = append(list, level{float64(number) + 0, code}) // −0 + 0 = 0
	}
	slices.SortFunc(list, func(a, b level) int {
		if a.number != b.number {
			return int(math.Copysign(1, a.number-b.number))
		}
		return int(a.code) - int(b.code)
	})
	list = slices.CompactFunc(list, func(a, b level) bool { return a.number == b.number })
	var l Levels
	for _, v := range list {
		l.Numbers, l.Codes = append(l.Numbers, v.number), append(l.Codes, v.code)
	}
	return l
}

// Farthest is the place of the level that is farthest from 0.
func (l Levels) Farthest() int {
	if top := len(l.Numbers) - 1; l.Numbers[top] > -l.Numbers[0] {
		return top
	}
	return 0
}

// Uniform reports whether all neighbours are equally far apart, as integers are.
func (l Levels) Uniform() bool {
	for i := 2; i < len(l.Numbers); i++ {
		if l.Numbers[i]-l.Numbers[i-1] != l.Numbers[1]-l.Numbers[0] {
			return false
		}
	}
	return true
}

// Nearest is the place of the level that is nearest to x. Half way between two it is that with the
// even code, and the upper one where both are odd or both even.
func (l Levels) Nearest(x float64) int {
	i, found := slices.BinarySearch(l.Numbers, x)
	switch {
	case found || i == 0:
		return i
	case i == len(l.Numbers):
		return i - 1
	}
	below, above := x-l.Numbers[i-1], l.Numbers[i]-x
	if below < above || below == above && l.Codes[i-1]%2 == 0 && l.Codes[i]%2 != 0 {
		return i - 1
	}
	return i
}

const maxCodes = 1 << 16

// Alphabet infers all codes of a quantizer from those that it returned: from the lowest to the
// highest, in steps of the greatest common divisor of their differences.
func Alphabet(seen ...[]int32) ([]int32, error) {
	all := slices.Concat(seen...)
	if len(all) == 0 {
		return nil, fmt.Errorf("it gives no codes")
	}
	low, high := int64(slices.Min(all)), int64(slices.Max(all))
	step := int64(0)
	for _, c := range all {
		for a, b := int64(c)-low, step; ; a, b = b, a%b {
			if b == 0 {
				step = a
				break
			}
		}
	}
	if step == 0 {
		return []int32{int32(low)}, nil
	}
	if (high-low)/step >= maxCodes {
		return nil, fmt.Errorf("its codes go from %d to %d: want at most %d of them", low, high, maxCodes)
	}
	var list []int32
	for c := low; c <= high; c += step {
		list = append(list, int32(c))
	}
	return list, nil
}

// ProbeRows are the rows of a probe that differ.
const ProbeRows = 64

// ProbeMatrix is a matrix for which a quantizer of whatever kind gives all its codes, or the first
// and the last: its rows are ramps in order and in disorder, normal numbers, and a few large ones
// among small ones.
func ProbeMatrix(rows, columns int, largest float64) []float64 {
	rng := rand.New(rand.NewPCG(0, 0))
	ramp := func(i int) float64 { return 2*float64(i)/float64(max(1, columns-1)) - 1 }
	x := make([]float64, 0, min(rows, ProbeRows)*columns)
	for row := range min(rows, ProbeRows) {
		order := rng.Perm(columns)
		for i := range columns {
			var v float64
			switch row % 4 {
			case 0:
				v = ramp(i)
			case 1:
				v = ramp(order[i])
			case 2:
				v = rng.NormFloat64() / 3
			case 3:
				if v = rng.NormFloat64() / 1000; i%16 == 0 {
					v = math.Copysign(1, float64(i/16%2)-0.5)
				}
			}
			x = append(x, v*largest)
		}
	}
	return slices.Repeat(x, (rows*columns+len(x)-1)/len(x))[:rows*columns]
}
