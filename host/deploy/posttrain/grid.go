package posttrain

import (
	"fmt"
	"math"
	"slices"
)

// Levels are the numbers that codes stand for, in units of the scale, in ascending order.
type Levels struct {
	Numbers []float64
	Codes   []int32 // the code of each number
}

// NewLevels sorts the numbers of codes. If several codes stand for one number, as for 0 and −0, it keeps the smallest
// code.
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

// Uniform reports whether all neighbours are equally far apart, as integers are.
func (l Levels) Uniform() bool {
	for i := 2; i < len(l.Numbers); i++ {
		if l.Numbers[i]-l.Numbers[i-1] != l.Numbers[1]-l.Numbers[0] {
			return false
		}
	}
	return true
}

// nearest is the place of the level that is nearest to x. Half way between two it is that with the even code, and the
// upper one where both are odd or both even.
func (l Levels) nearest(x float64) int {
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

// Grid holds the possible values of a matrix: those of element (i, j) are the numbers of Levels times the scale of its
// group.
type Grid struct {
	Levels
	Rows, Columns int
	Group         int       // consecutive elements of a row with one scale; the last group of a row may be shorter
	Scales        []float64 // [Rows, groups]
}

// Groups returns the number of groups in a row.
func (g *Grid) Groups() int { return (g.Columns + g.Group - 1) / g.Group }

func (g *Grid) scale(i, j int) float64 { return g.Scales[i*g.Groups()+j/g.Group] }

// round returns the code of the level nearest to x and its value, for an element of row i and column j. Ratios are in
// binary32, as those of quantizers are: so that an element half way between two levels, as the largest one of a grid may
// be, goes where a quantizer puts it.
func (g *Grid) round(x float64, i, j int) (code int32, value float64) {
	s := g.scale(i, j)
	ratio := 0.0
	if s != 0 {
		ratio = float64(float32(x / s))
	}
	at := g.nearest(ratio)
	return g.Codes[at], g.Numbers[at] * s
}

// Nearest rounds each element of w independently to its nearest level.
func (g *Grid) Nearest(w []float64) (codes []int32, values []float64) {
	codes, values = make([]int32, len(w)), make([]float64, len(w))
	for k, x := range w {
		codes[k], values[k] = g.round(x, k/g.Columns, k%g.Columns)
	}
	return codes, values
}

// Answer is what the program of a quantizer returns for a matrix, in the domain in which it rounds.
type Answer struct {
	Value []float32
	Codes []int32
	Scale []float32 // scales of the tensor, of each row, or of each group of each row
}

// NewGrid finds the grid of a matrix in what a quantizer returned for it, given the numbers that its codes stand for.
// It takes nothing on trust: the values must be the numbers times the scales, bit for bit.
func NewGrid(a Answer, numbers map[int32]float32, rows, columns int) (*Grid, error) {
	count := len(a.Scale)
	if count == 1 && rows > 1 { // of the tensor
		a.Scale, count = slices.Repeat(a.Scale, rows), rows
	}
	if count == 0 || count%rows != 0 || count/rows > columns {
		return nil, fmt.Errorf("its %d scales are not those of the tensor, of rows or of groups of a row", count)
	}
	perRow := count / rows
	g := &Grid{Levels: NewLevels(numbers), Rows: rows, Columns: columns, Scales: make([]float64, count)}
	for i, s := range a.Scale {
		g.Scales[i] = float64(s)
	}
	for g.Group = (columns + perRow - 1) / perRow; g.Groups() == perRow; g.Group++ {
		if g.represents(a, numbers) {
			return g, nil
		}
		if g.Group == columns {
			break
		}
	}
	return nil, fmt.Errorf("its values are not numbers of its codes times its scales")
}

// represents tells whether codes and scales stand for the values.
func (g *Grid) represents(a Answer, numbers map[int32]float32) bool {
	if len(a.Value) != g.Rows*g.Columns || len(a.Codes) != len(a.Value) {
		return false
	}
	for k, v := range a.Value {
		number, known := numbers[a.Codes[k]]
		if !known || number*float32(g.scale(k/g.Columns, k%g.Columns)) != v {
			return false
		}
	}
	return true
}

// maxCodes bounds the number of codes.
const maxCodes = 1 << 16

// Alphabet infers all codes of a quantizer from those that it returned: from the lowest to the highest, in steps of the
// greatest common divisor of their differences.
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
