package export

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/cage-qat/cage/internal/lists"
	"github.com/cage-qat/cage/sdk/spec"
)

// Grid is a quantized matrix as codes and scales. In float32, each element is the number that its
// code represents times the scale of its group, plus the group's minimum if there are Minima.
type Grid struct {
	Rows, Columns int
	// Group is the number of consecutive elements of a row that share a scale; it divides Columns.
	Group int
	// Numbers defines the number that each code represents, and which codes the quantizer uses.
	Numbers spec.Grid
	Codes   []int32   // [Rows, Columns]
	Scales  []float32 // [Rows, Columns/Group]; 0 for a group of zeros
	Minima  []float32 // as Scales; nil unless the format of Numbers is affine
}

// e2m1 holds the numbers of E2M1, indexed by code; e2m1Doubled holds twice these, as integers.
var e2m1, e2m1Doubled = func() (numbers [16]float32, doubled [16]int32) {
	for code := range numbers {
		numbers[code] = spec.Grid{Format: spec.FormatE2M1}.Number(int32(code))
		doubled[code] = int32(2 * numbers[code])
	}
	return numbers, doubled
}()

// NewGrid makes a grid from the output of a quantizer's program for a matrix of shape dims. It
// returns an error unless the grid reproduces Q(x) bit for bit. If there are no codes, it derives
// them from the values and scales. In groups of zeros, the scale is set to 0, and codes to 0 or −0.
func NewGrid(q *Quantized, dims []int) (*Grid, error) {
	switch {
	case len(dims) != 2:
		return nil, fmt.Errorf("got shape %v, want a matrix", dims)
	case q.Rotation > 1:
		return nil, &RotatedError{q.Rotation}
	case q.Scale == nil:
		return nil, errors.New("the quantizer returns no codes and scales")
	case q.Grid == (spec.Grid{}):
		return nil, errors.New("the quantizer does not declare which numbers its codes represent (Grid)")
	}
	g := &Grid{Rows: dims[0], Columns: dims[1], Group: dims[1], Numbers: q.Grid}
	if q.Grid.Group > 0 {
		g.Group = min(q.Grid.Group, g.Columns)
	}
	perRow, perGroup := (g.Columns+g.Group-1)/g.Group, q.Grid.PerGroup()
	if n := len(q.Scale); n != g.Rows*perRow*perGroup && (n != perGroup || q.Grid.Group > 0) {
		return nil, fmt.Errorf("got %d scales of shape %v, but the grid that the plugin declares "+
			"has %d for each row: this is a bug in the plugin", n, q.ScaleShape, perRow*perGroup)
	}
	g.Codes = make([]int32, len(q.Value))
	for row := range g.Rows {
		for from := 0; from < g.Columns; from += g.Group {
			scale := q.Scale[len(g.Scales)*perGroup%len(q.Scale)] // one for the tensor, or one per group
			minimum := float32(0)
			if perGroup > 1 {
				minimum = q.Scale[len(g.Scales)*perGroup%len(q.Scale)+1]
			}
			start, end := row*g.Columns+from, row*g.Columns+min(from+g.Group, g.Columns)
			zeros := !slices.ContainsFunc(q.Value[start:end], func(v float32) bool { return v != 0 })
			if zeros {
				scale, minimum = 0, 0
			}
			g.Scales = append(g.Scales, scale)
			if perGroup > 1 {
				g.Minima = append(g.Minima, minimum)
			}
			for i := start; i < end; i++ {
				v := q.Value[i]
				if q.Codes == nil || zeros {
					g.Codes[i] = nearest(v-minimum, scale, g.Numbers)
				} else {
					g.Codes[i] = q.Codes[i]
				}
				if !g.Numbers.Holds(g.Codes[i]) && !(g.Codes[i] == 0 && v == 0) {
					return nil, fmt.Errorf("got the code %d, which is not in the grid that "+
						"the plugin declares: this is a bug in the plugin", g.Codes[i])
				}
				if float32(g.Numbers.Number(g.Codes[i])*scale)+minimum != v {
					return nil, errors.New("Q(x) differs from its codes times its scales")
				}
			}
		}
	}
	if rest := g.Columns % g.Group; rest != 0 {
		return nil, &shortGroupError{g.Columns, g.Group, rest}
	}
	return g, nil
}

func nearest(value, scale float32, numbers spec.Grid) int32 {
	if value == 0 {
		if numbers.Format == spec.FormatE2M1 && math.Signbit(float64(value)) {
			return 8
		}
		return 0
	}
	ratio := float64(value) / float64(scale)
	if numbers.Format != spec.FormatE2M1 {
		return int32(math.Round(min(max(ratio, math.MinInt16), math.MaxInt16)))
	}
	ratio = min(max(ratio, -6), 6)
	best, least := int32(0), math.Inf(1)
	for code, number := range e2m1 {
		if d := math.Abs(float64(number) - ratio); d < least || d == least && code%2 == 0 && code != 8 {
			best, least = int32(code), d
		}
	}
	return best
}

func (g *Grid) of(p part) *Grid {
	out := *g
	out.Rows = len(p.Rows)
	out.Codes, out.Scales = pick(p, g.Codes), pick(p, g.Scales)
	if g.Minima != nil {
		out.Minima = pick(p, g.Minima)
	}
	return &out
}

func (g *Grid) split(size int) (*Grid, error) {
	if rest := g.Columns % size; rest != 0 {
		return nil, &shortGroupError{g.Columns, size, rest}
	}
	if g.Group%size != 0 {
		return nil, fmt.Errorf("scales are shared by %d elements, want a multiple of %d",
			g.Group, size)
	}
	if g.Group == size {
		return g, nil
	}
	out := *g
	out.Group = size
	each := func(list []float32) (out []float32) {
		for _, v := range list {
			out = append(out, slices.Repeat([]float32{v}, g.Group/size)...)
		}
		return out
	}
	out.Scales, out.Minima = each(g.Scales), each(g.Minima)
	return &out, nil
}

// integers returns the grid with integer codes: for E2M1, the doubled numbers with half the scale.
// The products are the same; it is an error if half of a scale is not exact.
func (g *Grid) integers() (*Grid, error) {
	switch g.Numbers.Format {
	case spec.FormatInteger:
		return g, nil
	case spec.FormatAffine:
		return nil, errors.New("groups have a minimum, too, which the type does not have")
	}
	out := *g
	out.Numbers = spec.Grid{
		Format: spec.FormatInteger, Min: -12, Max: 12, Step: 1, Group: g.Numbers.Group,
	}
	out.Codes = lists.Map(g.Codes, func(c int32) int32 { return e2m1Doubled[c] })
	out.Scales = make([]float32, len(g.Scales))
	for i, s := range g.Scales {
		if out.Scales[i] = s / 2; out.Scales[i]*2 != s {
			return nil, fmt.Errorf("half of the scale %v is too small for float32", s)
		}
	}
	return &out, nil
}

// floats returns the grid with E2M1 codes. It is an error if E2M1 cannot represent all its numbers.
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
	absent := func(c int32) bool {
		_, ok := of[c]
		return !ok
	}
	if g.Minima != nil || !g.fits(-largest, largest) ||
		slices.ContainsFunc(g.Numbers.Codes(), absent) {
		return nil, fmt.Errorf("the grid has integers from %d to %d in steps of %d, want numbers of "+
			"E2M1", g.Numbers.Min, g.Numbers.Max, g.Numbers.Step)
	}
	out := *g
	out.Numbers = spec.Grid{Format: spec.FormatE2M1, Group: g.Numbers.Group}
	out.Codes = lists.Map(g.Codes, func(c int32) int32 { return of[c] })
	return &out, nil
}

// fits reports whether all possible codes of an integer grid are in the range from low to high.
func (g *Grid) fits(low, high int) bool { return g.Numbers.Min >= low && g.Numbers.Max <= high }

// fromLeast returns codes less the least one of their group, 0 among them, and these.
func (g *Grid) fromLeast() (codes, least []int32) {
	for group := range slices.Chunk(g.Codes, g.Group) {
		low := min(0, slices.Min(group))
		codes = append(codes, lists.Map(group, func(c int32) int32 { return c - low })...)
		least = append(least, low)
	}
	return codes, least
}

// RotatedError reports that codes and scales are those of a rotated matrix. Such a weight can only
// be stored as the floats of Q(x), rotated back.
type RotatedError struct{ Block int }

func (e *RotatedError) Error() string {
	return fmt.Sprintf("the quantizer rotates blocks of %d, and programs that load the file would "+
		"not rotate the activations to match", e.Block)
}

type shortGroupError struct{ columns, group, rest int }

func (e *shortGroupError) Error() string {
	if e.columns < e.group {
		return fmt.Sprintf("rows have %d elements, want a multiple of %d", e.columns, e.group)
	}
	return fmt.Sprintf("rows of %d elements end in a group of %d, shorter than the others "+
		"of %d, but formats have only whole groups: the row length must be a multiple of %d",
		e.columns, e.rest, e.group, e.group)
}
