package cage

import (
	"cmp"
	"slices"

	"github.com/cage-qat/cage/sdk/spec"
)

// Levels holds the values of codes, in units of the scale, in ascending order.
type Levels struct {
	Numbers []float64
	Codes   []int32 // the code of each number
}

// Numbers maps each code of a grid to the number that it represents, in units of the scale; nil if
// the grid is unknown or affine, or a group has only some of the codes (Span).
func Numbers(g spec.Grid) map[int32]float32 {
	if g == (spec.Grid{}) || g.Format == spec.FormatAffine || g.Span > 0 {
		return nil
	}
	numbers := map[int32]float32{}
	for _, code := range g.Codes() {
		numbers[code] = g.Number(code)
	}
	return numbers
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
		return cmp.Or(cmp.Compare(a.number, b.number), cmp.Compare(a.code, b.code))
	})
	list = slices.CompactFunc(list, func(a, b level) bool { return a.number == b.number })
	var l Levels
	for _, v := range list {
		l.Numbers, l.Codes = append(l.Numbers, v.number), append(l.Codes, v.code)
	}
	return l
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
