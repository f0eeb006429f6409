package cage

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
)

// Levels holds the values of codes, in units of the scale, in ascending order.
type Levels struct {
	Numbers []float64
	Codes   []int32 // the code of each number
}

// NewLevels sorts the values of codes. If several codes have the same value, such as 0 and −0, it
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

// Farthest returns the index of the level farthest from 0.
func (l Levels) Farthest() int {
	if top := len(l.Numbers) - 1; l.Numbers[top] > -l.Numbers[0] {
		return top
	}
	return 0
}

// Uniform reports whether adjacent levels are equally spaced, like integers.
func (l Levels) Uniform() bool {
	for i := 2; i < len(l.Numbers); i++ {
		if l.Numbers[i]-l.Numbers[i-1] != l.Numbers[1]-l.Numbers[0] {
			return false
		}
	}
	return true
}

// Nearest returns the index of the level nearest to x. A tie goes to the level with the even code,
// or to the upper one if both or neither are even.
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

// Alphabet infers all codes of a quantizer from observed ones: from the lowest to the highest, in
// steps of the greatest common divisor of their differences.
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

// ProbeRows is the number of distinct rows of a probe.
const ProbeRows = 64

// ProbeMatrix returns a matrix for which any quantizer should return all its codes, or at least the
// lowest and the highest: its rows are sorted and shuffled ramps, normal samples, and small numbers
// with a few large outliers.
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
