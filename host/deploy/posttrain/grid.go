package posttrain

import (
	"errors"
	"fmt"
	"slices"

	"github.com/cage-qat/cage/host/cage"
	"github.com/cage-qat/cage/sdk/spec"
)

// Grid holds the possible values of the elements of a matrix: the numbers in Levels times the scale
// of the element's group.
type Grid struct {
	cage.Levels
	Rows, Columns int
	// Group is the number of consecutive elements of a row that share a scale; the last group of a
	// row may be shorter.
	Group  int
	Scales []float64 // [Rows, groups]
}

// Groups returns the number of groups in a row.
func (g *Grid) Groups() int { return (g.Columns + g.Group - 1) / g.Group }

func (g *Grid) scale(i, j int) float64 { return g.Scales[i*g.Groups()+j/g.Group] }

// round returns the value of the level nearest to x, for the element in row i and column j. The
// ratio is rounded to float32, as quantizers do, so that both round an element halfway between two
// levels, such as the largest element of some grids, in the same direction.
func (g *Grid) round(x float64, i, j int) float64 {
	s := g.scale(i, j)
	ratio := 0.0
	if s != 0 {
		ratio = float64(float32(x / s))
	}
	return g.Numbers[g.Levels.Nearest(ratio)] * s
}

// Answer is the output of a quantizer's program for a matrix, before any final rotation.
type Answer struct {
	Value []float32
	Codes []int32
	Scale []float32 // scales of the tensor, of rows, or of groups of rows
}

// NewGrid returns the grid of a matrix from a quantizer's answer and declaration. It is an error
// unless the values are the declared numbers times the scales, bit for bit.
func NewGrid(a Answer, declared spec.Grid, rows, columns int) (*Grid, error) {
	if declared.Format == spec.FormatAffine || declared.Span > 0 {
		return nil, errors.New("groups have a minimum or a zero point, too")
	}
	levels := cage.NewLevels(cage.Numbers(declared))
	g := &Grid{Levels: levels, Rows: rows, Columns: columns, Group: columns}
	if declared.Group > 0 {
		g.Group = min(declared.Group, columns)
	}
	if len(a.Scale) == 1 && g.Group == columns { // one scale for the tensor
		a.Scale = slices.Repeat(a.Scale, rows)
	}
	if len(a.Scale) != rows*g.Groups() {
		return nil, fmt.Errorf("got %d scales, but the plugin declares %d for each of %d rows",
			len(a.Scale), g.Groups(), rows)
	}
	for _, s := range a.Scale {
		g.Scales = append(g.Scales, float64(s))
	}
	for k, v := range a.Value {
		if code := a.Codes[k]; !declared.Holds(code) && !(code == 0 && v == 0) {
			return nil, fmt.Errorf("got the code %d, which the plugin's grid does not declare", code)
		}
		if declared.Number(a.Codes[k])*float32(g.scale(k/columns, k%columns)) != v {
			return nil, errors.New("the values differ from the numbers of the codes times the scales")
		}
	}
	return g, nil
}
