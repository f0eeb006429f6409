package posttrain

import (
	"fmt"
	"slices"

	"github.com/cage-qat/cage/host/cage"
)

// Grid holds the possible values of the elements of a matrix: the numbers of Levels times the scale
// of the element's group.
type Grid struct {
	cage.Levels
	Rows, Columns int
	Group         int       // consecutive elements of a row with one scale; the last group of a row may be shorter
	Scales        []float64 // [Rows, groups]
}

// Groups returns the number of groups in a row.
func (g *Grid) Groups() int { return (g.Columns + g.Group - 1) / g.Group }

func (g *Grid) scale(i, j int) float64 { return g.Scales[i*g.Groups()+j/g.Group] }

// round returns the code and value of the level nearest to x, for the element in row i and column
// j. The ratio is rounded to float32, as in quantizers, so that an element halfway between two
// levels, such as possibly the largest one of a grid, is rounded like there.
func (g *Grid) round(x float64, i, j int) (code int32, value float64) {
	s := g.scale(i, j)
	ratio := 0.0
	if s != 0 {
		ratio = float64(float32(x / s))
	}
	at := g.Levels.Nearest(ratio)
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

// Answer is the output of a quantizer's program for a matrix, in the domain in which it rounds.
type Answer struct {
	Value []float32
	Codes []int32
	Scale []float32 // scales of the tensor, of rows, or of groups of rows
}

// NewGrid derives the grid of a matrix from a quantizer's answer for it, given the numbers that its
// codes represent. The values must be the numbers times the scales, bit for bit.
func NewGrid(a Answer, numbers map[int32]float32, rows, columns int) (*Grid, error) {
	count := len(a.Scale)
	if count == 1 && rows > 1 { // one scale for the tensor
		a.Scale, count = slices.Repeat(a.Scale, rows), rows
	}
	if count == 0 || count%rows != 0 || count/rows > columns {
		return nil, fmt.Errorf("its %d scales are not those of the tensor, of rows or of groups of a row", count)
	}
	perRow := count / rows
	g := &Grid{Levels: cage.NewLevels(numbers), Rows: rows, Columns: columns, Scales: make([]float64, count)}
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
