package export

import (
	"fmt"
	"math"
	"slices"
)

// Grid is a quantized matrix as codes and scales: each element of a row is the number
// that its code stands for times the scale of its group, in float32.
type Grid struct {
	Rows, Columns int
	// Group is the number of consecutive elements of a row that share a scale; it divides
	// Columns.
	Group int
	// E2M1 says that the codes 0…15 are those of the four-bit float; otherwise a code
	// stands for itself.
	E2M1   bool
	Codes  []int32   // [Rows, Columns]
	Scales []float32 // [Rows, Columns/Group]
}

// e2m1 are the numbers of E2M1 by their code; e2m1Doubled are twice these, integers.
var (
	e2m1        = [16]float32{0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6}
	e2m1Doubled = [16]int32{0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12}
)

// NewGrid finds the grid in what a quantizer's program returned for a matrix of the given
// shape. It takes nothing on trust: only a grid that gives Q(x) bit for bit is accepted.
func NewGrid(q *Quantized, dims []int) (*Grid, error) {
	if len(dims) != 2 {
		return nil, fmt.Errorf("its shape %v is no matrix", dims)
	}
	if q.Rotation > 1 {
		return nil, &RotatedError{q.Rotation}
	}
	if q.Codes == nil || q.Scale == nil {
		return nil, fmt.Errorf("its quantizer returns no codes and scales")
	}
	g := &Grid{Rows: dims[0], Columns: dims[1], Codes: q.Codes}
	if err := g.spread(q); err != nil {
		return nil, err
	}
	for _, g.E2M1 = range []bool{false, true} {
		if g.represents(q.Value) {
			return g, nil
		}
	}
	return nil, fmt.Errorf("Q(x) is not its codes times its scales")
}

// spread sets the scales of all groups of each row.
func (g *Grid) spread(q *Quantized) error {
	count := len(q.Scale)
	switch {
	case count == 1:
		g.Group, g.Scales = g.Columns, slices.Repeat(q.Scale, g.Rows)
		return nil
	case count == 0 || count%g.Rows != 0:
		return fmt.Errorf("its %d scales, of shape %v, are not those of rows, groups or the tensor", count, q.ScaleShape)
	}
	perRow := count / g.Rows
	if g.Columns%perRow != 0 {
		return fmt.Errorf("its rows of %d elements have %d groups, of which the last is shorter", g.Columns, perRow)
	}
	g.Group, g.Scales = g.Columns/perRow, q.Scale
	return nil
}

// Codes finds the codes of a quantized matrix from its values and scales: integers, or else those of E2M1.
func Codes(q *Quantized, dims []int) ([]int32, error) {
	if len(dims) != 2 {
		return nil, fmt.Errorf("its shape %v is no matrix", dims)
	}
	g := &Grid{Rows: dims[0], Columns: dims[1], Codes: make([]int32, len(q.Value))}
	if err := g.spread(q); err != nil {
		return nil, err
	}
	for _, g.E2M1 = range []bool{false, true} {
		for i, v := range q.Value {
			g.Codes[i] = g.nearest(v, g.Scales[i/g.Group])
		}
		if g.represents(q.Value) {
			return g.Codes, nil
		}
	}
	return nil, fmt.Errorf("its numbers are neither integers nor four-bit floats times its scales")
}

// nearest is the code whose number comes nearest to a value.
func (g *Grid) nearest(value, scale float32) int32 {
	ratio := 0.0
	if scale != 0 {
		ratio = float64(value) / float64(scale)
	}
	if !g.E2M1 {
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

// represents tells whether the codes stand for these values.
func (g *Grid) represents(values []float32) bool {
	for i, v := range values {
		code := g.Codes[i]
		if g.E2M1 && (code < 0 || code > 15) || g.value(i) != v {
			return false
		}
	}
	return len(values) == len(g.Codes)
}

// value is the number that an element stands for.
func (g *Grid) value(i int) float32 {
	if g.E2M1 {
		return e2m1[g.Codes[i]] * g.Scales[i/g.Group]
	}
	return float32(g.Codes[i]) * g.Scales[i/g.Group]
}

// of is the grid of some rows.
func (g *Grid) of(p part) *Grid {
	out := *g
	out.Rows = len(p.rows)
	out.Codes, out.Scales = pick(p, g.Codes, g.Columns), pick(p, g.Scales, g.Columns/g.Group)
	return &out
}

// split is the grid with each group cut into groups of the given size.
func (g *Grid) split(size int) (*Grid, error) {
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
	if !g.E2M1 {
		return g, nil
	}
	out := *g
	out.E2M1 = false
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

// bits is the least of 4 and 8 bits that hold all codes as signed integers; 0 if none does.
func (g *Grid) bits() int {
	low, high := slices.Min(g.Codes), slices.Max(g.Codes)
	switch {
	case low >= -8 && high <= 7:
		return 4
	case low >= math.MinInt8 && high <= math.MaxInt8:
		return 8
	}
	return 0
}

// RotatedError says that codes and scales belong to a rotated matrix. Such a weight can
// be stored as the floats of Q(x), after rotating back.
type RotatedError struct{ Block int }

func (e *RotatedError) Error() string {
	return fmt.Sprintf("its quantizer rotates blocks of %d, and programs that load the file would not rotate what is multiplied with it", e.Block)
}
