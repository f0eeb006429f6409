package export

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/cage-qat/cage/sdk/spec"
)

// Grid is a quantized matrix as codes and scales: each element of a row is the number
// that its code stands for times the scale of its group, in float32.
type Grid struct {
	Rows, Columns int
	// Group is the number of consecutive elements of a row that share a scale; it divides
	// Columns.
	Group int
	// Numbers says which number a code stands for, and which codes the quantizer has.
	Numbers spec.Grid
	Codes   []int32   // [Rows, Columns]
	Scales  []float32 // [Rows, Columns/Group]; 0 where a group has zeros only
}

// anyE2M1 and anyInteger are the grids as which codes are read of a quantizer that does not say
// what its grid is.
var (
	anyE2M1    = spec.Grid{Format: spec.FormatE2M1}
	anyInteger = spec.Grid{
		Format: spec.FormatInteger, Min: math.MinInt32, Max: math.MaxInt32, Step: 1,
	}
)

// e2m1 are the numbers of E2M1 by their code; e2m1Doubled are twice these, integers.
var e2m1, e2m1Doubled = func() (numbers [16]float32, doubled [16]int32) {
	for code := range numbers {
		numbers[code] = anyE2M1.Number(int32(code))
		doubled[code] = int32(2 * numbers[code])
	}
	return numbers, doubled
}()

// NewGrid makes a grid of what a quantizer's program returned for a matrix of the given
// shape, whose codes are those of numbers. Only a grid that gives Q(x)
// bit for bit is accepted. Without codes it finds them by the values and scales.
func NewGrid(q *Quantized, dims []int, numbers spec.Grid) (*Grid, error) {
	switch {
	case len(dims) != 2:
		return nil, fmt.Errorf("its shape %v is no matrix", dims)
	case q.Rotation > 1:
		return nil, &RotatedError{q.Rotation}
	case q.Scale == nil:
		return nil, errors.New("its quantizer returns no codes and scales")
	}
	g := &Grid{Rows: dims[0], Columns: dims[1], Numbers: numbers}
	sizes, err := g.sizes(q)
	if err != nil {
		return nil, err
	}
	for _, g.Group = range sizes {
		if !g.read(q) {
			continue
		}
		if rest := g.Columns % g.Group; rest != 0 {
			return nil, &shortGroupError{g.Columns, g.Group, rest}
		}
		return g, nil
	}
	for _, c := range q.Codes {
		if !numbers.Holds(c) && c != 0 {
			return nil, fmt.Errorf("it has the code %d, which the grid that its plugin declares "+
				"does not have: this is a mistake of the plugin", c)
		}
	}
	if q.Codes == nil {
		return nil, errors.New("its numbers are neither integers nor four-bit floats times its scales")
	}
	return nil, errors.New("Q(x) is not its codes times its scales")
}

// numbersOf are the numbers that codes stand for, of quantizers that do not say so: as the codes
// of all weights can be read together, so that what a single weight holds, such as zeros, decides
// nothing. The zero Grid says that there is no common way; each weight is then read by itself.
func numbersOf(weights func(each func(q *Quantized, dims []int)) error) (spec.Grid, error) {
	integers, floats, odd := true, true, true
	found := anyInteger
	found.Min, found.Max, found.Step = 0, 0, 1
	err := weights(func(q *Quantized, dims []int) {
		if _, err := NewGrid(q, dims, anyE2M1); err != nil {
			floats = false
		}
		g, err := NewGrid(q, dims, anyInteger)
		if err != nil {
			integers = false
			return
		}
		for i, c := range g.Codes {
			if g.Scales[i/g.Group] != 0 {
				found.Min, found.Max = min(found.Min, int(c)), max(found.Max, int(c))
				odd = odd && c%2 != 0
			}
		}
	})
	switch {
	case integers && odd && found.Max > found.Min:
		limit := max(-found.Min, found.Max) // one sign may not occur
		found.Min, found.Max, found.Step = -limit, limit, 2
		return found, err
	case integers:
		return found, err
	case floats:
		return anyE2M1, err
	}
	return spec.Grid{}, err
}

// sizes are the numbers of elements that may share a scale, by the number of scales: one, if the
// quantizer says so, and otherwise first the one that divides a row.
func (g *Grid) sizes(q *Quantized) (list []int, err error) {
	count, declared := len(q.Scale), g.Numbers.Group
	switch {
	case count == 1 && declared == 0:
		return []int{g.Columns}, nil
	case count == 0 || count%g.Rows != 0 || count > len(q.Value):
		return nil, fmt.Errorf("its %d scales, of shape %v, are not those of rows, groups or the tensor",
			count, q.ScaleShape)
	}
	perRow := count / g.Rows
	holds := func(size int) bool { return (g.Columns+size-1)/size == perRow }
	if declared > 0 {
		if declared = min(declared, g.Columns); !holds(declared) {
			return nil, fmt.Errorf("its rows of %d elements have %d scales, but groups of %d by the "+
				"plugin: this is a mistake of the plugin", g.Columns, perRow, declared)
		}
		return []int{declared}, nil
	}
	for size := g.Columns / perRow; size <= g.Columns && (len(list) == 0 || holds(size)); size++ {
		if holds(size) {
			list = append(list, size)
		}
	}
	return list, nil
}

// read sets codes and scales, and reports whether they stand for Q(x). The codes and the scale of
// a group of zeros say nothing: they become 0.
func (g *Grid) read(q *Quantized) bool {
	if len(q.Value) != g.Rows*g.Columns || len(q.Codes) != 0 && len(q.Codes) != len(q.Value) {
		return false
	}
	g.Codes, g.Scales = make([]int32, len(q.Value)), nil
	for row := range g.Rows {
		for from := 0; from < g.Columns; from += g.Group {
			scale := q.Scale[len(g.Scales)%len(q.Scale)] // one for the tensor, or one for each group
			start, end := row*g.Columns+from, row*g.Columns+min(from+g.Group, g.Columns)
			if !slices.ContainsFunc(q.Value[start:end], func(v float32) bool { return v != 0 }) {
				g.Scales = append(g.Scales, 0)
				continue
			}
			g.Scales = append(g.Scales, scale)
			for i, v := range q.Value[start:end] {
				code := &g.Codes[start+i]
				if q.Codes == nil {
					*code = nearest(v, scale, g.Numbers)
				} else {
					*code = q.Codes[start+i]
				}
				if !(g.Numbers.Holds(*code) || *code == 0 && v == 0) || g.Numbers.Number(*code)*scale != v {
					return false
				}
			}
		}
	}
	return true
}

func nearest(value, scale float32, numbers spec.Grid) int32 {
	ratio := 0.0
	if scale != 0 {
		ratio = float64(value) / float64(scale)
	}
	if numbers.Format != spec.FormatE2M1 {
		return int32(math.Round(min(max(ratio, math.MinInt16), math.MaxInt16)))
	}
	best := int32(0)
	for code, number := range e2m1 {
		if math.Abs(float64(number)-ratio) < math.Abs(float64(e2m1[best])-ratio) {
			best = int32(code)
		}
	}
	return best
}

func (g *Grid) of(p part) *Grid {
	out := *g
	out.Rows = len(p.rows)
	out.Codes, out.Scales = pick(p, g.Codes, g.Columns), pick(p, g.Scales, g.Columns/g.Group)
	return &out
}

// split is the grid with each group cut into groups of the given size.
func (g *Grid) split(size int) (*Grid, error) {
	if rest := g.Columns % size; rest != 0 {
		return nil, &shortGroupError{g.Columns, size, rest}
	}
	if g.Group%size != 0 {
		return nil, fmt.Errorf("its scales are shared by %d elements, which are no groups of %d", g.Group, size)
	}
	if g.Group == size {
		return g, nil
	}
	out := *g
	out.Group, out.Scales = size, make([]float32, 0, len(g.Codes)/size)
	for _, s := range g.Scales {
		for range g.Group / size {
			out.Scales = append(out.Scales, s)
		}
	}
	return &out, nil
}

// integers is the grid with integers as codes: of E2M1 the doubled numbers, with half the
// scale. Both give the same products as long as half the scale is exact.
func (g *Grid) integers() (*Grid, error) {
	if g.Numbers.Format == spec.FormatInteger {
		return g, nil
	}
	out := *g
	out.Numbers = spec.Grid{
		Format: spec.FormatInteger, Min: -12, Max: 12, Step: 1, Group: g.Numbers.Group,
	}
	out.Codes, out.Scales = make([]int32, len(g.Codes)), make([]float32, len(g.Scales))
	for i, c := range g.Codes {
		out.Codes[i] = e2m1Doubled[c]
	}
	for i, s := range g.Scales {
		if out.Scales[i] = s / 2; out.Scales[i]*2 != s {
			return nil, fmt.Errorf("half of its scale %v is below the numbers of float32", s)
		}
	}
	return &out, nil
}

// floats is the grid with the codes of E2M1: of integers, if E2M1 has all that the grid has.
func (g *Grid) floats() (*Grid, error) {
	if g.Numbers.Format == spec.FormatE2M1 {
		return g, nil
	}
	of := map[int32]int32{}
	for code, number := range e2m1 {
		if whole := int32(number); float32(whole) == number && (whole != 0 || code == 0) {
			of[whole] = int32(code)
		}
	}
	largest := int(e2m1[7])
	missing := !g.fits(-largest, largest)
	if !missing {
		missing = slices.ContainsFunc(g.Numbers.Codes(), func(c int32) bool {
			_, ok := of[c]
			return !ok
		})
	}
	if missing {
		return nil, fmt.Errorf("its numbers are integers, not those of E2M1: from %d to %d in steps of %d",
			g.Numbers.Min, g.Numbers.Max, g.Numbers.Step)
	}
	out := *g
	out.Numbers = spec.Grid{Format: spec.FormatE2M1, Group: g.Numbers.Group}
	out.Codes = make([]int32, len(g.Codes))
	for i, c := range g.Codes {
		out.Codes[i] = of[c]
	}
	return &out, nil
}

// fits reports whether the codes of a grid of integers are from low to high, whatever codes occur.
func (g *Grid) fits(low, high int) bool { return g.Numbers.Min >= low && g.Numbers.Max <= high }

// RotatedError says that codes and scales belong to a rotated matrix. Such a weight can
// be stored as the floats of Q(x), after rotating back.
type RotatedError struct{ Block int }

func (e *RotatedError) Error() string {
	return fmt.Sprintf("its quantizer rotates blocks of %d, and programs that load the file would not rotate what is multiplied with it", e.Block)
}

// shortGroupError says that the last group of each row is shorter than the others.
type shortGroupError struct{ columns, group, rest int }

func (e *shortGroupError) Error() string {
	return fmt.Sprintf("its rows of %d elements end in a group of %d, which is shorter than the "+
		"others, of %d, and formats have only whole groups: rows of a multiple of %d fit",
		e.columns, e.rest, e.group, e.group)
}
